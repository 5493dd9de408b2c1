-- Make the state of a group or of a broadcast client, under a new incarnation; or add queues to it.
-- 1: made; 0: it was there; -1: too many clients.
-- {client, incarnation, most clients, {head, start} of each queue}
local CLIENT, INCARNATION, MOST_CLIENTS, STARTS = unpack(R)
local scope = scope_of(CLIENT)
-- This very request may have made it, and its answer was lost.
local is_new = not scope or scope.incarnation == INCARNATION
if not scope then
  if CLIENT ~= '' then
    for _, idle in ipairs(call('ZRANGEBYSCORE', G .. ':scopes', '-inf', NOW - CLIENT_TTL)) do
      seldom().drop(base_of(idle))
      call('ZREM', G .. ':scopes', idle)
    end
    if not call('ZSCORE', G .. ':scopes', CLIENT) and call('ZCARD', G .. ':scopes') >= MOST_CLIENTS then return -1 end
    call('ZADD', G .. ':scopes', NOW, CLIENT)
  end
  seldom().drop(base_of(CLIENT))
  call('HSET', base_of(CLIENT) .. ':state', 'run', RUN, 'incarnation', INCARNATION, 'last_seen', NOW)
  scope = scope_of(CLIENT)
end
for _, start in ipairs(STARTS) do
  local head, at = unpack(start)
  if not queue_of(scope, head[1]) then scope.rows[head[1]] = book().new_row(head[1], head, at) end
end
save(scope)
-- Where all was lost, so is who waits.
if is_new then seldom().tell(CLIENT) else wake(CLIENT) end
return is_new and 1 or 0
