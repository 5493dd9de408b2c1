-- Move committed past a dead message, if its queue still stands there; only then is the answer 1.
local lease = R.lease
local scope = scope_of(lease.client)
local row = scope and scope.incarnation == lease.incarnation and queue_of(scope, lease.queue)
if not row or row.epoch ~= lease.epoch or row.committed ~= lease.start then return 0 end
commit(scope, row, row.committed + 1)
save(scope)
wake(scope.client)
return 1
