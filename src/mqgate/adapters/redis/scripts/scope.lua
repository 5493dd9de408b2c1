-- What scripts share: keys, scopes, tokens, wake-ups.
--
-- Every key of a group begins with KEYS[1], so that all of them lie in one slot of a cluster; the names of the others are
-- made here, in the books and in the steps, and nowhere else. A scope is the lease state of a group, or of one client of
-- a broadcast group.
--
--   <group>:tokens            hash: the rate limit's bucket
--   <group>:seen, :clients    who polled: sorted set by time, hash with address and first time
--   <group>:scopes            broadcast: sorted set of clients by last contact
--   <group>:remembered        broadcast: hash, how many unacked ends all clients have together
--   <group>:parked            exists while somebody waits in a long poll of any gateway
--   <scope>:state             hash: run, incarnation, what a book says; and each queue's row, packed
--   <scope>:positions         hash: each queue's row as a line, for whoever looks at it
--   what queue_book.lua and message_book.lua say of theirs
local R = cmsgpack.unpack(ARGV[5])

local function base_of(client)
  return client == '' and G or (G .. ':client:' .. client)
end

-- What a book says of its rows: how one is read, packed, shown and put into its indexes; and, in `book`, how one is made
-- and put elsewhere, where consumers stand in it, and what a first arrival means.
local read_row, pack_row, line_of, index_row, book

-- Queues of one scope during one step: read once, written once. `is_changed`: it must be written.
local function queue_of(scope, queue)
  if scope.rows[queue] == nil then
    local packed = call('HGET', scope.base .. ':state', queue)
    scope.rows[queue] = packed and read_row(queue, packed) or false
  end
  return scope.rows[queue] or nil
end

-- To make a function costs as much as a small command, all the more with many locals around it that others use; and a
-- script makes all of its functions each time it runs. So those that a usual step does not need are made when one does:
-- here, in `book`, and in the steps themselves.
local made
local function seldom()
  if made then return made end
  local S = {}
  made = S

  local FIXED = {'state', 'positions', 'free', 'aged', 'held', 'exhausted', 'attempts', 'unacked', 'unacked:order',
    'grants', 'leases', 'failed', 'due', 'dying', 'fresh', 'placing', 'ended', 'emptied', 'overtaken'}
  local OF_QUEUE = {'open:', 'failed:', 'order:', 'keys:'}

  -- Forget everything of a scope.
  function S.drop(base)
    if base ~= G then
      local kept = call('LLEN', base .. ':unacked:order')
      if kept > 0 then call('HINCRBY', G .. ':remembered', 'receipts', -kept) end
    end
    for _, queue in ipairs(call('HKEYS', base .. ':positions')) do
      for _, kind in ipairs(OF_QUEUE) do call('DEL', base .. ':' .. kind .. queue) end
    end
    for _, name in ipairs(FIXED) do call('DEL', base .. ':' .. name) end
  end

  local function bucket()
    local found = call('HMGET', G .. ':tokens', 'tokens', 'at')
    local at = tonumber(found[2]) or NOW
    local tokens = tonumber(found[1]) or BURST
    return math.min(tokens + math.max(NOW - at, 0) * RATE / 1000, BURST), math.max(NOW, at)
  end

  function S.take_tokens(most)
    local tokens, at = bucket()
    local taken = math.max(math.min(most, math.floor(tokens)), 0)
    call('HSET', G .. ':tokens', 'tokens', string.format('%.17g', tokens - taken), 'at', at)
    return taken
  end

  function S.refund(count)
    if count > 0 and RATE > 0 then
      local tokens = call('HGET', G .. ':tokens', 'tokens')
      if tokens then call('HSET', G .. ':tokens', 'tokens', string.format('%.17g', tokens + count)) end
    end
  end

  -- An answer that was served a lease was broken: whether all have been that it was served to. Only then nobody has it:
  -- which of two came first to a gateway is not known here. `returned` has a bit for each; beyond fifty it ends by itself.
  function S.is_nobodys(lease, serve)
    local bit = 2 ^ (serve - 1)
    if lease.returned % (2 * bit) < bit then lease.returned, lease.is_changed = lease.returned + bit, true end
    return lease.serves <= 50 and lease.returned == 2 ^ lease.serves - 1
  end

  function S.next_token_at()
    local tokens = bucket()
    return NOW + math.ceil(math.max(1 - tokens, 0) * 1000 / RATE)
  end

  -- Who polled when; told once a second and client, and forgotten after a day, or if there are too many.
  local MOST_SEEN = 10000
  function S.see_client(name, address)
    local known = call('HGET', G .. ':clients', name)
    local first = known and cmsgpack.unpack(known)[2] or NOW
    call('HSET', G .. ':clients', name, cmsgpack.pack({address, first}))
    call('ZADD', G .. ':seen', NOW, name)
    local old = call('ZRANGEBYSCORE', G .. ':seen', '-inf', NOW - 86400000, 'LIMIT', 0, 10)
    if call('ZCARD', G .. ':seen') > MOST_SEEN then old = call('ZRANGE', G .. ':seen', 0, 0) end
    for _, gone in ipairs(old) do
      call('HDEL', G .. ':clients', gone)
      call('ZREM', G .. ':seen', gone)
    end
  end

  -- Somebody begins to wait.
  function S.park(wait)
    if call('PTTL', G .. ':parked') < wait then call('SET', G .. ':parked', 1, 'PX', wait) end
  end

  function S.tell(client, at)
    local channel, gateway, group = unpack(cmsgpack.unpack(ARGV[4]))
    call('PUBLISH', channel, cmsgpack.pack({gateway, group, client, at or 0}))
  end

  local BELIEVED = 5000
  -- Take note of queues' ends: how far queues went back that came again shorter, and those that are not known.
  --
  -- Gateways tell what they saw a moment ago, so a lower end is believed only if the higher one is old. A broker that
  -- was started anew (its boot time rose) may have lost its last messages and stored others at their offsets since:
  -- the group goes back to the first that was stored after it (`floor`).
  function S.see_heads(scope, heads, closed)
    local rewound, strangers, B = 0, {}, book()
    for _, head in ipairs(heads or {}) do
      local queue, min, max, boot, floor, rose = unpack(head)
      local row = queue_of(scope, queue)
      if not row then
        if not (closed and closed[queue]) then strangers[#strangers + 1] = queue end
      else
        row.is_changed = true
        local is_booted = boot and boot > row.boot
        if is_booted then
          if row.boot > 0 and B.front_of(row) > floor then
            rewound = rewound + B.front_of(row) - floor
            B.move_queue(scope, row, math.max(math.min(floor, row.committed), min))
          end
          row.boot = boot
        end
        if max >= row.max or is_booted or row.told_at + BELIEVED <= NOW then
          if math.max(B.front_of(row), row.min) >= row.max then B.rising(row, rose) end
          row.min, row.max, row.told_at = min, max, NOW
        elseif min > row.min then
          row.min = math.min(min, row.max)
        end
        if B.front_of(row) > row.max then
          rewound = rewound + B.front_of(row) - row.min
          B.move_queue(scope, row, row.min)
        end
      end
    end
    return rewound, strangers
  end

  return S
end

-- Something of a scope became ready, or will at an instant: whoever waits on another gateway tries again.
local function wake(client, at)
  if call('EXISTS', G .. ':parked') == 1 then seldom().tell(client, at) end
end

-- How long a failed delivery waits before the next; one that was given back, and failed all the same, as the first.
local function backoff(failures)
  failures = math.max(failures, 1)
  if FACTOR == 0 then
    local steps = cmsgpack.unpack(ARGV[4])[4]
    return steps[math.min(failures, #steps)]
  end
  if FIRST_BACKOFF == 0 then return 0 end
  local plain = math.min(FIRST_BACKOFF * FACTOR ^ math.min(failures - 1, 64), MOST_BACKOFF)
  if JITTER == 0 then return math.floor(plain) end
  -- Each of a step's messages another one; by the golden ratio they lie far apart.
  DRAW = (DRAW + 0.618034) % 1
  return math.floor(math.min(plain * (1 + JITTER * (2 * DRAW - 1)), MOST_BACKOFF))
end

-- The scope, with one of its queues if it is named; nil if there is none, if it is of another run, or if a broadcast
-- client was idle for too long. A contact of the client itself keeps it alive; somebody who looks at it does not.
local function scope_of(client, is_contact, queue)
  local base = base_of(client)
  local found = call('HMGET', base .. ':state', 'run', 'incarnation', 'epoch', 'in_flight', 'calm', queue or '')
  if found[1] ~= RUN then return nil end
  if client ~= '' then
    if call('HGET', base .. ':state', 'last_seen') + CLIENT_TTL <= NOW then
      seldom().drop(base)
      call('ZREM', G .. ':scopes', client)
      return nil
    end
    if is_contact then
      call('HSET', base .. ':state', 'last_seen', NOW)
      call('ZADD', G .. ':scopes', NOW, client)
    end
  end
  local scope = {base = base, client = client, incarnation = found[2], rows = {}, epoch = tonumber(found[3]) or 0,
    in_flight = tonumber(found[4]) or 0, calm = tonumber(found[5]) or 0, is_freed = false}
  if found[6] then scope.rows[queue] = read_row(queue, found[6]) end
  return scope
end

-- Write what changed, and further fields of the state.
local function save(scope, ...)
  local rows, lines, state = {...}, {}, scope.base .. ':state'
  for queue, row in pairs(scope.rows) do
    if row and row.is_changed then
      row.is_changed = false
      index_row(scope, row)
      rows[#rows + 1], rows[#rows + 2] = queue, pack_row(row)
      lines[#lines + 1], lines[#lines + 2] = queue, line_of(row)
      -- More arguments than Lua can pass.
      if #lines == 1000 then
        call('HSET', state, unpack(rows))
        call('HSET', scope.base .. ':positions', unpack(lines))
        rows, lines = {}, {}
      end
    end
  end
  if #rows > 0 then call('HSET', state, unpack(rows)) end
  if #lines > 0 then call('HSET', scope.base .. ':positions', unpack(lines)) end
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
local function told(outcome, doomed, till)
  return (doomed or till) and {outcome, till or 0, doomed} or outcome
end
