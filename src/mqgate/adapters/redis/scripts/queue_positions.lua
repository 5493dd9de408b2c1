-- Return the position of each queue and the exhausted messages.
-- ARGV[5] {client, bounds}; bounds: see queue_acquire.lua
-- Returns nil: no state | {positions = {..}, exhausted = {..}}
local scope = scope_of(REQUEST[1])
if not scope then return false end
scope_slow_path().update_bounds(scope, REQUEST[2])
local exhausted, found = {}, {}
slow_path().end_leases(scope, {}, exhausted)
for _, queue in ipairs(call('HKEYS', scope.base .. ':positions')) do
  local row = queue_of(scope, queue)
  if is_free(row) then slow_path().mark_if_exhausted(scope, row, exhausted) end
  local is_held = row.free_at > 0
  local is_leased = is_held and NOW < row.locked_until
  local first = math.max(row.committed, row.min)
  local batch = is_held and math.max(row.batch_end - first, 0) or 0
  found[#found + 1] = {queue = queue, min = row.min, max = row.max, committed = row.committed,
    cursor = is_leased and row.batch_end or row.committed, ready = math.max(row.max - first - batch, 0),
    leased = is_leased and batch or 0, waiting = is_leased and 0 or batch,
    locked_until = is_leased and row.locked_until or nil, last_client = row.locked_by ~= '' and row.locked_by or nil,
    last_consumed_at = row.last_consumed_at, attempts = row.attempts, is_blocked = row.exhausted > 0 and not is_held,
    expired = row.expired, epoch = row.epoch}
end
save(scope)
return cmsgpack.pack({positions = found, exhausted = exhausted})
