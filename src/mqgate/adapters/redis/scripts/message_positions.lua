-- Return the position of each queue and the exhausted messages.
-- ARGV[5] {client, bounds}; bounds: see queue_acquire.lua
-- Returns nil: no state | {positions = {..}, exhausted = {..}}
local scope = open_state('')
if not scope then return false end
scope_slow_path().update_bounds(scope, REQUEST[2])
repeat
  slow_path().end_leases(scope)
until call('ZCOUNT', scope.base .. ':leases', '-inf', NOW) == 0
local leased, waiting, ready = {}, {}, {}
local function count(counts, queue, more) counts[queue] = (counts[queue] or 0) + more end
for _, epoch in ipairs(call('ZRANGE', scope.base .. ':leases', 0, -1)) do
  local grant = grant_at(scope, tonumber(epoch))
  count(leased, grant.queue, grant.open)
end
for _, name in ipairs(call('HKEYS', scope.base .. ':failed')) do
  local queue, offset = name:match('^(.*) (%d+)$')
  local row = slow_path().failed_at(scope, queue, tonumber(offset))
  local grant = grant_at(scope, row.epoch)
  local is_leased = grant and grant.queue == queue and grant.states[row.offset - grant.start + 1] == OPEN
  -- Messages that retention deleted are reported by the next receive.
  if not is_leased and row.offset >= queue_of(scope, queue).min then
    local is_ready = row.ready_at and row.ready_at <= NOW
    count(is_ready and not slow_path().mark_if_exhausted(scope, row) and ready or waiting, queue, 1)
  end
end
close_state(scope)
local found = {}
for _, queue in ipairs(call('HKEYS', scope.base .. ':positions')) do
  local row = queue_of(scope, queue)
  found[#found + 1] = {queue = queue, min = row.min, max = row.max, committed = row.committed, cursor = row.cursor,
    ready = (ready[queue] or 0) + math.max(row.max - math.max(row.cursor, row.min), 0), leased = leased[queue] or 0,
    waiting = waiting[queue] or 0, last_client = row.last_client ~= '' and row.last_client or nil,
    last_consumed_at = row.last_consumed_at, attempts = 0, is_blocked = false, expired = row.expired,
      epoch = row.placing}
end
local exhausted = slow_path().exhausted_messages(scope)
return cmsgpack.pack({positions = found, exhausted = exhausted})
