-- Where each queue stands, and which messages must die first.
local scope = scope_of(R.client)
if not scope then return false end
see_heads(scope, R.heads)
local doomed, found = {}, {}
free_and_doom(scope, {}, doomed)
for _, queue in ipairs(call('SMEMBERS', scope.base .. ':queues')) do
  local row = queue_of(scope, queue)
  local is_leased = row.held == 1 and NOW < row.locked_until
  local first = math.max(row.committed, row.min)
  local batch = row.held == 1 and math.max(row.batch_end - first, 0) or 0
  found[#found + 1] = {queue = queue, min = row.min, max = row.max, committed = row.committed,
    cursor = is_leased and row.batch_end or row.committed, ready = math.max(row.max - first - batch, 0),
    leased = is_leased and batch or 0, waiting = is_leased and 0 or batch,
    locked_until = is_leased and row.locked_until or nil, last_client = row.locked_by ~= '' and row.locked_by or nil,
    last_consumed_at = row.last_consumed_at, attempts = row.attempts, is_blocked = row.exhausted > 0 and row.held == 0,
    expired = row.expired, epoch = row.epoch}
end
save(scope)
return cmsgpack.pack({positions = found, doomed = doomed})
