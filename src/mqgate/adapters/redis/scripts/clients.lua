-- Who polled lately, the latest first, and which queues they hold.
local held = {}
local function hold(name, queue)
  held[name] = held[name] or {}
  held[name][queue] = true
end
local function look(client)
  local base = base_of(client)
  for _, queue in ipairs(call('ZRANGE', base .. ':held', 0, -1)) do
    local found = call('HMGET', base .. ':queue:' .. queue, 'locked_until', 'locked_by')
    if tonumber(found[1]) > NOW then hold(client ~= '' and client or found[2], queue) end
  end
  for _, epoch in ipairs(call('ZRANGEBYSCORE', base .. ':leases', '(' .. NOW, '+inf')) do
    local grant = cmsgpack.unpack(call('HGET', base .. ':grants', epoch))
    hold(grant[7], grant[1])
  end
end
look('')
for _, client in ipairs(call('ZRANGE', G .. ':scopes', 0, -1)) do look(client) end
local found = {}
local seen = call('ZREVRANGE', G .. ':seen', 0, R.most - 1, 'WITHSCORES')
for i = 1, #seen, 2 do
  local address, first = unpack(cmsgpack.unpack(call('HGET', G .. ':clients', seen[i])))
  local queues = {}
  for queue in pairs(held[seen[i]] or {}) do queues[#queues + 1] = queue end
  found[#found + 1] = {name = seen[i], address = address, first_seen = first, last_seen = tonumber(seen[i + 1]), holds = queues}
end
return cmsgpack.pack(found)
