-- Move committed offsets and revoke all leases of the queues. Unknown queues are added. A dry run changes nothing.
-- ARGV[5] {client, bounds, {{queue, to}, ..}, is_dry_run}; bounds: see queue_acquire.lua
-- Returns nil: no state | {{queue, from, to, settled messages before `to`, settled messages after it}, ..}
local CLIENT, BOUNDS, TARGETS, IS_DRY_RUN = unpack(REQUEST)
local scope = slow_path().open(CLIENT)
if not scope then return false end
local _, unknown_queues = scope_slow_path().update_bounds(scope, BOUNDS)
local bounds, moves = {}, {}
for _, queue_bounds in ipairs(BOUNDS) do bounds[queue_bounds[1]] = queue_bounds end
for _, queue in ipairs(unknown_queues) do
  scope.rows[queue] = slow_path().new_row(queue, bounds[queue], bounds[queue][2])
end
for _, target in ipairs(TARGETS) do
  local queue, to = unpack(target)
  local row = queue_of(scope, queue)
  if row then
    moves[#moves + 1] = {queue, row.committed, to, slow_path().count_settled_around(scope, row, to)}
    if not IS_DRY_RUN then slow_path().move_queue(scope, row, to) end
  end
end
slow_path().close(scope)
if not IS_DRY_RUN then wake(CLIENT) end
return cmsgpack.pack(moves)
