-- Functions that all lease scripts share: scopes, tokens, wake-ups.
--
-- A scope is the lease state of a group, or of one client of a broadcast group. Its keys begin with KEYS[1], or with
-- KEYS[1]:client:<clientId>:
--
--   <scope>:state             hash: run, incarnation, fields of the mode; and the packed row of each queue
--   <scope>:positions         hash: the row of each queue as a readable line
--   and the keys that queue_state.lua and message_state.lua list
local REQUEST = cmsgpack.unpack(ARGV[5])
local TOKENS, SEEN, CLIENTS, SCOPES, REMEMBERED, PARKED = unpack(KEYS, 2, 7)

local function scope_base(client)
  return client == '' and GROUP or (GROUP .. ':client:' .. client)
end

-- Each mode defines these in its *_state.lua: unpack, pack, print and index a row; `slow_path` returns the functions
-- that a common step does not need.
local read_row, pack_row, line_of, index_row, slow_path

-- Return the row of a queue. A step reads each row once, and writes it once if `is_changed`.
local function queue_of(scope, queue)
  if scope.rows[queue] == nil then
    local packed = call('HGET', scope.base .. ':state', queue)
    scope.rows[queue] = packed and read_row(queue, packed) or false
  end
  return scope.rows[queue] or nil
end

-- A script creates its functions every time it runs, and creating a function costs as much as a small command. So
-- functions that a common step does not need are created on demand: here, in `slow_path` and in `acquire_slow_path`.
local scope_functions
local function scope_slow_path()
  if scope_functions then return scope_functions end
  local own = {}
  scope_functions = own

  local SCOPE_KEYS = {'state', 'positions', 'free', 'aged', 'held', 'exhausted', 'attempts', 'unacked', 'unacked:order',
    'grants', 'leases', 'failed', 'due', 'dying', 'fresh', 'placing', 'ended', 'emptied', 'overtaken'}
  local QUEUE_KEYS = {'open:', 'failed:', 'order:', 'keys:'}

  -- Delete all keys of a scope.
  function own.drop(base)
    if base ~= GROUP then
      local kept = call('LLEN', base .. ':unacked:order')
      if kept > 0 then call('HINCRBY', REMEMBERED, 'receipts', -kept) end
    end
    for _, queue in ipairs(call('HKEYS', base .. ':positions')) do
      for _, kind in ipairs(QUEUE_KEYS) do call('DEL', base .. ':' .. kind .. queue) end
    end
    for _, name in ipairs(SCOPE_KEYS) do call('DEL', base .. ':' .. name) end
  end

  local function bucket()
    local found = call('HMGET', TOKENS, 'tokens', 'at')
    local at = tonumber(found[2]) or NOW
    local tokens = tonumber(found[1]) or BURST
    return math.min(tokens + math.max(NOW - at, 0) * RATE / 1000, BURST), math.max(NOW, at)
  end

  function own.take_tokens(limit)
    local tokens, at = bucket()
    local taken = math.max(math.min(limit, math.floor(tokens)), 0)
    call('HSET', TOKENS, 'tokens', string.format('%.17g', tokens - taken), 'at', at)
    return taken
  end

  function own.refund(count)
    if count > 0 and RATE > 0 then
      local tokens = call('HGET', TOKENS, 'tokens')
      if tokens then call('HSET', TOKENS, 'tokens', string.format('%.17g', tokens + count)) end
    end
  end

  -- Mark a serve of the lease as not received by its client. Return whether that is so for all serves: only then the
  -- lease can be released, because any other serve may have reached the client. `returned` has one bit per serve; a
  -- lease that was served more than 50 times is left to expire.
  function own.all_serves_returned(lease, serve)
    local bit = 2 ^ (serve - 1)
    if lease.returned % (2 * bit) < bit then lease.returned, lease.is_changed = lease.returned + bit, true end
    return lease.serves <= 50 and lease.returned == 2 ^ lease.serves - 1
  end

  function own.next_token_at()
    local tokens = bucket()
    return NOW + math.ceil(math.max(1 - tokens, 0) * 1000 / RATE)
  end

  -- Record the poll of a client. Clients are deleted a day after their last poll, or if there are more than MAX_SEEN.
  local MAX_SEEN = 10000
  function own.record_poll(name, address)
    local known = call('HGET', CLIENTS, name)
    local first = known and cmsgpack.unpack(known)[2] or NOW
    call('HSET', CLIENTS, name, cmsgpack.pack({address, first}))
    call('ZADD', SEEN, NOW, name)
    local old = call('ZRANGEBYSCORE', SEEN, '-inf', NOW - 86400000, 'LIMIT', 0, 10)
    if call('ZCARD', SEEN) > MAX_SEEN then old = call('ZRANGE', SEEN, 0, 0) end
    for _, gone in ipairs(old) do
      call('HDEL', CLIENTS, gone)
      call('ZREM', SEEN, gone)
    end
  end

  -- Record that a receive is parked for up to `wait` ms.
  function own.park(wait)
    if call('PTTL', PARKED) < wait then call('SET', PARKED, 1, 'PX', wait) end
  end

  function own.publish_wake_up(client, at)
    local channel, gateway, group = unpack(cmsgpack.unpack(ARGV[4]))
    call('PUBLISH', channel, cmsgpack.pack({gateway, group, client, at or 0}))
  end

  local BOUNDS_TRUSTED_MS = 5000
  -- Store the reported bounds of queues. Return by how many offsets queues were rewound, and the unknown queues.
  --
  -- Reports may arrive out of order, so a lower max is accepted only if the stored one is older than BOUNDS_TRUSTED_MS.
  -- A restarted broker (its boot time is higher) may have lost its last messages and stored others at their offsets:
  -- the group is rewound to the first offset that was stored after the restart (`floor`).
  function own.update_bounds(scope, bounds, closed)
    local rewound, unknown_queues, mode = 0, {}, slow_path()
    for _, queue_bounds in ipairs(bounds or {}) do
      local queue, min, max, boot, floor, last_append_ms = unpack(queue_bounds)
      local row = queue_of(scope, queue)
      if not row then
        if not (closed and closed[queue]) then unknown_queues[#unknown_queues + 1] = queue end
      else
        row.is_changed = true
        local is_booted = boot and boot > row.boot
        if is_booted then
          if row.boot > 0 and mode.position_of(row) > floor then
            rewound = rewound + mode.position_of(row) - floor
            mode.move_queue(scope, row, math.max(math.min(floor, row.committed), min))
          end
          row.boot = boot
        end
        if max >= row.max or is_booted or row.bounds_reported_at + BOUNDS_TRUSTED_MS <= NOW then
          if math.max(mode.position_of(row), row.min) >= row.max then mode.note_first_append(row, last_append_ms) end
          row.min, row.max, row.bounds_reported_at = min, max, NOW
        elseif min > row.min then
          row.min = math.min(min, row.max)
        end
        if mode.position_of(row) > row.max then
          rewound = rewound + mode.position_of(row) - row.min
          mode.move_queue(scope, row, row.min)
        end
      end
    end
    return rewound, unknown_queues
  end

  return own
end

-- Wake parked receives of other gateways: messages of the scope are ready now, or will be at an instant.
local function wake(client, at)
  if call('EXISTS', PARKED) == 1 then scope_slow_path().publish_wake_up(client, at) end
end

-- Return the delay after a failed delivery, in ms. A released delivery that fails later counts as the first failure.
local function backoff(failures)
  failures = math.max(failures, 1)
  if FACTOR == 0 then
    local steps = cmsgpack.unpack(ARGV[4])[4]
    return steps[math.min(failures, #steps)]
  end
  if FIRST_BACKOFF == 0 then return 0 end
  local plain = math.min(FIRST_BACKOFF * FACTOR ^ math.min(failures - 1, 64), MAX_BACKOFF)
  if JITTER == 0 then return math.floor(plain) end
  -- Every message of a step gets another jitter. Multiples of the golden ratio are spread evenly.
  DRAW = (DRAW + 0.618034) % 1
  return math.floor(math.min(plain * (1 + JITTER * (2 * DRAW - 1)), MAX_BACKOFF))
end

-- Return the scope, and read the row of `queue` with it. Return nil if there is no state, if it belongs to another run,
-- or if the broadcast client has expired. `is_contact`: the client itself called, which keeps its scope alive.
local function scope_of(client, is_contact, queue)
  local base = scope_base(client)
  local found = call('HMGET', base .. ':state', 'run', 'incarnation', 'epoch', 'in_flight', 'calm', queue or '')
  if found[1] ~= RUN then return nil end
  if client ~= '' then
    if call('HGET', base .. ':state', 'last_seen') + CLIENT_TTL <= NOW then
      scope_slow_path().drop(base)
      call('ZREM', SCOPES, client)
      return nil
    end
    if is_contact then
      call('HSET', base .. ':state', 'last_seen', NOW)
      call('ZADD', SCOPES, NOW, client)
    end
  end
  local scope = {base = base, client = client, incarnation = found[2], rows = {}, epoch = tonumber(found[3]) or 0,
    in_flight = tonumber(found[4]) or 0, quiet_until = tonumber(found[5]) or 0, is_freed = false}
  if found[6] then scope.rows[queue] = read_row(queue, found[6]) end
  return scope
end

-- Write changed rows, and the given further fields of the state.
local function save(scope, ...)
  local rows, lines, state = {...}, {}, scope.base .. ':state'
  for queue, row in pairs(scope.rows) do
    if row and row.is_changed then
      row.is_changed = false
      index_row(scope, row)
      rows[#rows + 1], rows[#rows + 2] = queue, pack_row(row)
      lines[#lines + 1], lines[#lines + 2] = queue, line_of(row)
      -- unpack() is limited by the Lua stack.
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
  for _, member in ipairs(list or {}) do found[member] = true end
  return found
end

local function is_applied(outcome)
  return outcome == 'applied' or outcome == 'late_applied'
end

-- Return the reply for one settlement: the outcome alone if there is no other member.
local function settlement_reply(outcome, exhausted, till)
  return (exhausted or till) and {outcome, till or 0, exhausted} or outcome
end
