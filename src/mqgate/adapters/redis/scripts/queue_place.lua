-- Say what pulls found: what lies behind `after` goes back at once, uncounted if that is all; tokens are refunded.
-- Per placement whether it still stood: a lease no longer current, or spent, changes nothing; nor does one that was served
-- again, unless all of it goes back.
--
-- {{lease, serve, after}, ..}; a lease is {client, queue, start, next, epoch, incarnation}
local scopes, known = scopes_of()
local placed = {}
for i, placement in ipairs(R[1]) do
  local lease, serve, after = unpack(placement)
  local client, queue, start, next_start, epoch, incarnation = unpack(lease)
  local scope = scopes(client, queue)
  local row = scope and scope.incarnation == incarnation and queue_of(scope, queue)
  placed[i] = false
  local is_current = row and row.epoch == epoch and row.committed == start and row.ended_by == 0
  if is_current and after == start then
    placed[i] = true
    if serve <= row.serves and seldom().is_nobodys(row, serve) then
      seldom().refund(row.batch_end - start)
      book().unlock(scope, row, 0)
      row.attempts, row.exhausted = row.attempts - 1, 0
      wake(scope.client)
    end
  elseif is_current and row.serves == serve and IS_REPEAT and row.batch_end == after then
    -- Done before, and the answer was lost.
    placed[i] = true
  elseif is_current and row.serves == serve and row.batch_end == next_start then
    placed[i] = true
    seldom().refund(next_start - after)
    row.batch_end, row.is_changed = after, true
  end
end
save_all(known)
return cmsgpack.pack(placed)
