-- Apply pull reports: offsets from `after` on are released and their tokens refunded. If the whole batch is released,
-- the delivery is not counted. A report changes nothing if its lease is no longer current, was settled, or was served
-- again (unless the whole batch is released).
--
-- ARGV[5] {{{lease, serve, after}, ..}}; a lease is {client, queue, start, next, epoch, incarnation}
-- Returns {is_current per report}
local scopes, known = scopes_of()
local results = {}
for i, report in ipairs(REQUEST[1]) do
  local lease, serve, after = unpack(report)
  local client, queue, start, next_start, epoch, incarnation = unpack(lease)
  local scope = scopes(client, queue)
  local row = scope and scope.incarnation == incarnation and queue_of(scope, queue)
  results[i] = false
  local is_current = row and row.epoch == epoch and row.committed == start and row.ended_by == 0
  if is_current and after == start then
    results[i] = true
    if serve <= row.serves and scope_slow_path().all_serves_returned(row, serve) then
      scope_slow_path().refund(row.batch_end - start)
      slow_path().unlock(scope, row, 0)
      row.attempts, row.exhausted = row.attempts - 1, 0
      wake(scope.client)
    end
  elseif is_current and row.serves == serve and IS_REPEAT and row.batch_end == after then
    -- The report was applied before and its reply was lost.
    results[i] = true
  elseif is_current and row.serves == serve and row.batch_end == next_start then
    results[i] = true
    scope_slow_path().refund(next_start - after)
    row.batch_end, row.is_changed = after, true
  end
end
save_all(known)
return cmsgpack.pack(results)
