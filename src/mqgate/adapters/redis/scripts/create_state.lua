-- Create the lease state of a group or of a broadcast client under a new incarnation, or add queues to existing state.
-- ARGV[5] {client, incarnation, max clients, {{bounds, start} per queue}}; bounds: see queue_acquire.lua
-- Returns 1 created | 0 existed | -1 too many clients
local CLIENT, INCARNATION, MAX_CLIENTS, STARTS = unpack(REQUEST)
local scope = scope_of(CLIENT)
-- The same incarnation: this request created the state before, and its reply was lost.
local is_new = not scope or scope.incarnation == INCARNATION
if not scope then
  if CLIENT ~= '' then
    for _, idle in ipairs(call('ZRANGEBYSCORE', SCOPES, '-inf', NOW - CLIENT_TTL)) do
      scope_slow_path().drop(scope_base(idle))
      call('ZREM', SCOPES, idle)
    end
    if not call('ZSCORE', SCOPES, CLIENT) and call('ZCARD', SCOPES) >= MAX_CLIENTS then return -1 end
    call('ZADD', SCOPES, NOW, CLIENT)
  end
  scope_slow_path().drop(scope_base(CLIENT))
  call('HSET', scope_base(CLIENT) .. ':state', 'run', RUN, 'incarnation', INCARNATION, 'last_seen', NOW)
  scope = scope_of(CLIENT)
end
for _, start in ipairs(STARTS) do
  local queue_bounds, at = unpack(start)
  local queue = queue_bounds[1]
  if not queue_of(scope, queue) then scope.rows[queue] = slow_path().new_row(queue, queue_bounds, at) end
end
save(scope)
-- If the state was lost, so was the key `parked`: wake without checking it.
if is_new then scope_slow_path().publish_wake_up(CLIENT) else wake(CLIENT) end
return is_new and 1 or 0
