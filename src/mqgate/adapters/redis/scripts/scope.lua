-- Begins every script: the request, the store's clock, keys, scopes, tokens, wake-ups.
--
-- KEYS[1] is `<prefix>:{<group>}`. Every key of a group begins with it, so that all of them lie in one slot of a
-- cluster; the names of the others are made here and nowhere else. ARGV[1] is the request, in MessagePack; so is the
-- answer. A scope is the lease state of a group, or of one client of a broadcast group.
--
--   <group>:tokens            hash: the rate limit's bucket
--   <group>:seen, :clients    who polled: sorted set by time, hash with address and first time
--   <group>:scopes            broadcast: sorted set of clients by last contact
--   <group>:remembered        broadcast: hash, how many spent receipts all clients have together
--   <group>:parked            exists while somebody waits in a long poll of any gateway
--   <scope>:state             hash: run, incarnation; message mode: epoch, in_flight
--   <scope>:queues            set of names
--   <scope>:queue:<queue>     hash: min, max, committed, ...
--   what queue_book.lua and message_book.lua say of theirs
--
-- A scope counts only under the run of the server that it was made in: a server that starts again may have lost its
-- last writes, and epochs that grow again from an older number would bring old receipts back to life.
local call = redis.call
local G = KEYS[1]
local R = cmsgpack.unpack(ARGV[1])
local GROUP = R.group
local NOW = R.now
if not NOW then
  local time = call('TIME')
  NOW = time[1] * 1000 + math.floor(time[2] / 1000)
end
math.randomseed(R.seed or 0)

local FIXED = {'state', 'queues', 'free', 'aged', 'held', 'exhausted', 'attempts', 'spent', 'spent:order',
  'grants', 'leases', 'failed', 'due', 'dying', 'fresh', 'placing', 'ended'}
local OF_QUEUE = {'queue:', 'open:', 'failed:', 'order:', 'keys:'}

local function base_of(client)
  return client == '' and G or (G .. ':client:' .. client)
end

-- Forget everything of a scope.
local function drop(base)
  if base ~= G then
    local kept = call('LLEN', base .. ':spent:order')
    if kept > 0 then call('HINCRBY', G .. ':remembered', 'receipts', -kept) end
  end
  for _, queue in ipairs(call('SMEMBERS', base .. ':queues')) do
    for _, kind in ipairs(OF_QUEUE) do call('DEL', base .. ':' .. kind .. queue) end
  end
  for _, name in ipairs(FIXED) do call('DEL', base .. ':' .. name) end
end

-- The scope; nil if there is none, if it is of another run, or if a broadcast client was idle for too long.
-- A contact of the client itself keeps it alive; somebody who looks at it does not.
local function scope_of(client, is_contact)
  local base = base_of(client)
  local found = call('HMGET', base .. ':state', 'run', 'incarnation', 'epoch', 'in_flight', 'last_seen')
  if found[1] ~= R.run then return nil end
  if client ~= '' then
    if tonumber(found[5]) + GROUP.client_ttl <= NOW then
      drop(base)
      call('ZREM', G .. ':scopes', client)
      return nil
    end
    if is_contact then
      call('HSET', base .. ':state', 'last_seen', NOW)
      call('ZADD', G .. ':scopes', NOW, client)
    end
  end
  return {base = base, client = client, incarnation = found[2], rows = {},
    epoch = tonumber(found[3]) or 0, in_flight = tonumber(found[4]) or 0}
end

-- How long a failed delivery waits before the next; one that was given back, and failed all the same, as the first.
local function backoff(failures)
  local rule = GROUP.backoff
  failures = math.max(failures, 1)
  if rule.steps then return rule.steps[math.min(failures, #rule.steps)] end
  if rule.initial == 0 then return 0 end
  local plain = math.min(rule.initial * rule.factor ^ math.min(failures - 1, 64), rule.most)
  return math.floor(math.min(plain * (1 + rule.jitter * (2 * math.random() - 1)), rule.most))
end

local function bucket()
  local found = call('HMGET', G .. ':tokens', 'tokens', 'at')
  local at = tonumber(found[2]) or NOW
  local tokens = tonumber(found[1]) or GROUP.rate.burst
  return math.min(tokens + math.max(NOW - at, 0) * GROUP.rate.rate / 1000, GROUP.rate.burst), math.max(NOW, at)
end

local function take_tokens(most)
  local tokens, at = bucket()
  local taken = math.max(math.min(most, math.floor(tokens)), 0)
  call('HSET', G .. ':tokens', 'tokens', string.format('%.17g', tokens - taken), 'at', at)
  return taken
end

local function refund(count)
  if count > 0 and GROUP.rate then
    local tokens = call('HGET', G .. ':tokens', 'tokens')
    if tokens then call('HSET', G .. ':tokens', 'tokens', string.format('%.17g', tokens + count)) end
  end
end

local function next_token_at()
  local tokens = bucket()
  return NOW + math.ceil(math.max(1 - tokens, 0) * 1000 / GROUP.rate.rate)
end

-- Who polled when; told once a second and client, and forgotten after a day, or if there are too many.
local MOST_SEEN = 10000
local function see_client(client)
  local known = call('HGET', G .. ':clients', client.name)
  local first = known and cmsgpack.unpack(known)[2] or NOW
  call('HSET', G .. ':clients', client.name, cmsgpack.pack({client.address, first}))
  call('ZADD', G .. ':seen', NOW, client.name)
  local old = call('ZRANGEBYSCORE', G .. ':seen', '-inf', NOW - 86400000, 'LIMIT', 0, 10)
  if call('ZCARD', G .. ':seen') > MOST_SEEN then old = call('ZRANGE', G .. ':seen', 0, 0) end
  for _, name in ipairs(old) do
    call('HDEL', G .. ':clients', name)
    call('ZREM', G .. ':seen', name)
  end
end

-- Somebody begins to wait.
local function park(wait)
  if call('PTTL', G .. ':parked') < wait then call('SET', G .. ':parked', 1, 'PX', wait) end
end

local function tell(client, at)
  call('PUBLISH', R.channel, cmsgpack.pack({R.gateway, GROUP.name, client, at or 0}))
end

-- Something of a scope became ready, or will at an instant: whoever waits on another gateway tries again.
local function wake(client, at)
  if call('EXISTS', G .. ':parked') == 1 then tell(client, at) end
end

-- Whether the state was made anew since the gateway last met it: then it must tell again all that it told once.
local function is_other(scope)
  return R.incarnation and R.incarnation ~= scope.incarnation
end

-- Queues of one scope during one step: read once, written once. A book says which fields there are (numbers first), how
-- a changed one is indexed, where consumers stand in it, how it is put elsewhere, and what a first arrival means.
local FIELDS, NUMBERS, save_queue, front_of, move_queue, rising
local BELIEVED = 5000

local function queue_of(scope, queue)
  if scope.rows[queue] == nil then
    local found = call('HMGET', scope.base .. ':queue:' .. queue, unpack(FIELDS))
    local row = found[1] and {queue = queue, changes = {}} or false
    if row then
      for i = 1, NUMBERS do row[FIELDS[i]] = tonumber(found[i]) or 0 end
      for i = NUMBERS + 1, #FIELDS do row[FIELDS[i]] = found[i] or '' end
    end
    scope.rows[queue] = row
  end
  return scope.rows[queue] or nil
end

local function change(row, ...)
  local given = {...}
  for i = 1, #given, 2 do
    local field, value = given[i], given[i + 1]
    if row[field] ~= value then
      row[field] = value
      row.changes[field] = value
    end
  end
end

local function write(scope, row)
  local fields = {}
  for field, value in pairs(row.changes) do
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  call('HSET', scope.base .. ':queue:' .. row.queue, unpack(fields))
  row.changes = {}
end

local function save(scope)
  for _, row in pairs(scope.rows) do
    if row and next(row.changes) then
      save_queue(scope, row)
      write(scope, row)
    end
  end
end

local function add_queue(scope, head, start)
  local row = {queue = head.queue, changes = {}}
  change(row, 'min', head.min, 'max', head.max, 'committed', start, 'told_at', NOW, 'boot', head.boot or 0)
  rising(row, start)
  for i, field in ipairs(FIELDS) do row[field] = row[field] or (i <= NUMBERS and 0 or '') end
  scope.rows[head.queue] = row
  call('SADD', scope.base .. ':queues', head.queue)
end

-- Take note of queues' ends: how far queues went back that came again shorter, and those that are not known.
--
-- Gateways tell what they saw a moment ago, so a lower end is believed only if the higher one is old. A broker that
-- was started anew (its boot time rose) may have lost its last messages and stored others at their offsets since:
-- the group goes back to the first that was stored after it (`floor`).
local function see_heads(scope, heads, closed)
  local rewound, strangers = 0, {}
  for _, head in ipairs(heads or {}) do
    local row = queue_of(scope, head.queue)
    if not row then
      if not (closed and closed[head.queue]) then strangers[#strangers + 1] = head.queue end
    else
      local is_booted = head.boot and head.boot > row.boot
      if is_booted then
        if row.boot > 0 and front_of(row) > head.floor then
          rewound = rewound + front_of(row) - head.floor
          move_queue(scope, row, math.max(math.min(head.floor, row.committed), head.min))
        end
        change(row, 'boot', head.boot)
      end
      if head.max >= row.max or is_booted or row.told_at + BELIEVED <= NOW then
        if math.max(front_of(row), row.min) >= row.max then rising(row) end
        change(row, 'min', head.min, 'max', head.max, 'told_at', NOW)
      elseif head.min > row.min then
        change(row, 'min', math.min(head.min, row.max))
      end
      if front_of(row) > row.max then
        rewound = rewound + front_of(row) - row.min
        move_queue(scope, row, row.min)
      end
    end
  end
  return rewound, strangers
end

local function set_of(list)
  local found = {}
  for _, each in ipairs(list or {}) do found[each] = true end
  return found
end

-- Whether a settlement with this outcome changes something.
local function is_applied(outcome)
  return outcome == 'applied' or outcome == 'late_applied'
end

-- A settlement's outcome, alone where there is no more to say of it.
local function told(settled)
  return (settled.doomed or settled.until_ms) and settled or settled.outcome
end
