-- Move committed past a dead message, if its queue still stands there; only then is the answer 1.
-- {lease: client, queue, start, next, epoch, incarnation; whether retention took it before anybody could keep it}
local client, queue, start, _, epoch, incarnation = unpack(R[1])
local scope = scope_of(client, false, queue)
local row = scope and scope.incarnation == incarnation and queue_of(scope, queue)
if not row or row.epoch ~= epoch or row.committed ~= start then return 0 end
stand_at(scope, row, start + 1)
row.last_consumed_at = NOW
if R[2] then row.expired = row.expired + 1 end
save(scope)
wake(client)
return 1
