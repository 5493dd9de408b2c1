-- Say what pulls found: what lies behind `after` goes back at once, uncounted if that is all; tokens are refunded.
-- Per placement whether it still stood: a lease no longer current, spent, or served again changes nothing.
local scopes, known = scopes_of()
local placed = {}
for i, placement in ipairs(R.placements) do
  local lease = placement.lease
  local scope = scopes(lease.client)
  local row = scope and scope.incarnation == lease.incarnation and queue_of(scope, lease.queue)
  placed[i] = false
  local is_current = row and row.epoch == lease.epoch and row.committed == lease.start
    and row.serves == placement.serve
    and call('HEXISTS', scope.base .. ':spent', lease.queue .. ' ' .. lease.epoch) == 0
  if is_current and R.is_repeat and row.batch_end == placement.after then
    -- Done before, and the answer was lost.
    placed[i] = true
  elseif is_current and row.batch_end == lease.next then
    placed[i] = true
    refund(lease.next - placement.after)
    if placement.after == lease.start then
      leave_attempt(scope, row)
      change(row, 'locked_until', NOW, 'held', 0, 'attempts', row.attempts - 1, 'exhausted', 0,
        'serves', 0)
      wake(scope.client)
    else
      change(row, 'batch_end', placement.after)
    end
  end
end
save_all(known)
return cmsgpack.pack(placed)
