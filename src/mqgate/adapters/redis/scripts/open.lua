-- Make the state of a group or of a broadcast client, under a new incarnation; or add queues to it.
-- 1: made; 0: it was there; -1: too many clients.
local scope = scope_of(R.client)
-- This very request may have made it, and its answer was lost.
local is_new = not scope or scope.incarnation == R.incarnation
if not scope then
  if R.client ~= '' then
    for _, idle in ipairs(call('ZRANGEBYSCORE', G .. ':scopes', '-inf', NOW - GROUP.client_ttl)) do
      drop(base_of(idle))
      call('ZREM', G .. ':scopes', idle)
    end
    if not call('ZSCORE', G .. ':scopes', R.client) and call('ZCARD', G .. ':scopes') >= R.most_clients then return -1 end
    call('ZADD', G .. ':scopes', NOW, R.client)
  end
  drop(base_of(R.client))
  call('HSET', base_of(R.client) .. ':state', 'run', R.run, 'incarnation', R.incarnation, 'last_seen', NOW)
  scope = scope_of(R.client)
end
for _, start in ipairs(R.starts) do
  if not queue_of(scope, start.head.queue) then add_queue(scope, start.head, start.at) end
end
save(scope)
-- Where all was lost, so is who waits.
if is_new then tell(R.client) else wake(R.client) end
return is_new and 1 or 0
