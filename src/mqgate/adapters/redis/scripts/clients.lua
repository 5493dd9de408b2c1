-- List clients by their last poll, latest first, with the queues that they hold.
-- ARGV[5] {max clients}
-- Returns {{client, address, first poll, last poll, {queue, ..}}, ..}
local held = {}
local function hold(name, queue)
  held[name] = held[name] or {}
  held[name][queue] = true
end
local function collect_held(client)
  local base = scope_base(client)
  for _, queue in ipairs(call('ZRANGE', base .. ':held', 0, -1)) do
    local till, holder = call('HGET', base .. ':positions', queue):match('locked_until=(%d+) .- locked_by=(.*)$')
    if tonumber(till) > NOW then hold(client ~= '' and client or holder, queue) end
  end
  local leases = call('ZRANGE', base .. ':leases', 0, -1, 'WITHSCORES')
  for i = 1, #leases, 2 do
    local _, _, _, base_until, _, _, _, _, _, _, queue, states, client, _, _, ends = struct.unpack(GRANT,
      call('HGET', base .. ':grants', leases[i]))
    local is_held = tonumber(leases[i + 1]) > NOW
    -- The score is the earliest lease end of the grant; single messages may have been extended.
    if not is_held and ends ~= '' then
      local own = cmsgpack.unpack(ends)
      for number = 1, #states do
        is_held = is_held or states:byte(number) == OPEN and (own[number] or base_until) > NOW
      end
    end
    if is_held then hold(client, queue) end
  end
end
collect_held('')
for _, client in ipairs(call('ZRANGE', SCOPES, 0, -1)) do collect_held(client) end
local found = {}
local seen = call('ZREVRANGE', SEEN, 0, REQUEST[1] - 1, 'WITHSCORES')
for i = 1, #seen, 2 do
  local address, first = unpack(cmsgpack.unpack(call('HGET', CLIENTS, seen[i])))
  local queues = {}
  for queue in pairs(held[seen[i]] or {}) do queues[#queues + 1] = queue end
  found[#found + 1] = {seen[i], address, first, tonumber(seen[i + 1]), queues}
end
return cmsgpack.pack(found)
