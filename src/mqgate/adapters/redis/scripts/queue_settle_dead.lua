-- Move committed past a dead letter, if the message is still the first of its queue.
-- ARGV[5] {{client, queue, start, next, epoch, incarnation}, is_expired: retention deleted it before it could be
--        stored}
-- Returns 1 moved | 0 not current
local client, queue, start, _, epoch, incarnation = unpack(REQUEST[1])
local scope = scope_of(client, false, queue)
local row = scope and scope.incarnation == incarnation and queue_of(scope, queue)
if not row or row.epoch ~= epoch or row.committed ~= start then return 0 end
move_committed(scope, row, start + 1)
row.last_consumed_at = NOW
if REQUEST[2] then row.expired = row.expired + 1 end
save(scope)
wake(client)
return 1
