-- Settle a dead letter, if the message is still exhausted under the same epoch.
-- ARGV[5] {{client, queue, start, next, epoch, incarnation}, is_expired: retention deleted it before it could be
--        stored}
-- Returns 1 settled | 0 not current
local _, queue, start, _, epoch, incarnation = unpack(REQUEST[1])
local scope = open_state('')
local row = scope and slow_path().failed_at(scope, queue, start)
if not row or not row.is_exhausted or row.epoch ~= epoch or scope.incarnation ~= incarnation then return 0 end
slow_path().settle_finally(scope, queue, start)
if REQUEST[2] then
  local its = queue_of(scope, queue)
  its.expired, its.is_changed = its.expired + 1, true
end
close_state(scope)
return 1
