-- Message mode: queues, grants and failed messages of one scope. A step reads each once and writes it once.
--
--   <scope>:state          epoch: number of grants so far; in_flight: messages in open grants; `calm` (here
--                          quiet_until): before this instant no lease ends, no message is due or exhausted, and
--                          retention has deleted no granted message
--   row of a queue         see message_row.lua
--   <scope>:fresh          sorted set by served_at: queues with messages that were never granted
--   <scope>:grants         hash: epoch -> grant, see message_row.lua; kept after its end for repeated acks (duplicate)
--   <scope>:ended          list: `<epoch> <time>` of ended grants, oldest first
--   <scope>:leases         sorted set by earliest lease end: epochs of open grants
--   <scope>:open:<queue>   sorted set by first open offset: epochs of open grants of a queue
--   <scope>:failed         hash: `<queue> <offset>` -> message that failed, was released, or waits for its key
--   <scope>:failed:<queue> sorted set: offsets of these messages
--   <scope>:due            sorted set by the time at which they are ready
--   <scope>:dying          set: exhausted messages
--   <scope>:attempts       hash: attemptId -> epochs
--   <scope>:order:<queue>  ordered groups, sorted set: `<key> <offset>` of unsettled messages
--   <scope>:keys:<queue>   ordered groups, hash: offset -> key
--   <scope>:placing        ordered groups, set: queues with a grant whose pull is not reported yet
--   <scope>:overtaken      set: queues of which retention deleted messages that were granted and are unsettled
--   <scope>:emptied        set: queues that retention has emptied after the cursor, until a receive has reported it
local REMEMBERED_MS, MIN_REMEMBERED, PULL_REPORT_TIMEOUT = 600000, 10000, 10000
local MAX_RANGES, MAX_ENDED, MAX_EXPIRED = 64, 2000, 1000

local function fresh_of(row)
  return row.max - math.max(row.cursor, row.min)
end

local function is_emptied(row)
  return row.cursor < row.min and row.max <= row.min
end

-- Return whether retention deleted messages that were granted and are unsettled.
local function has_expired_grants(row)
  return row.committed < row.min and row.committed < row.cursor
end

read_row = function(queue, packed)
  local min, max, bounds_reported_at, boot, committed, cursor, revoked_epoch, placing, served_at, last_consumed_at,
    expired, last_client = struct.unpack(ROW, packed)
  return {queue = queue, min = min, max = max, bounds_reported_at = bounds_reported_at, boot = boot,
    committed = committed, cursor = cursor, revoked_epoch = revoked_epoch, placing = placing, served_at = served_at,
    last_consumed_at = last_consumed_at, expired = expired, last_client = last_client, is_changed = false,
    was_placing = placing, was_emptied = cursor < min and max <= min, had_expired = committed < min
    and committed < cursor, fresh_at = max > cursor and max > min and served_at}
end

pack_row = function(row)
  return struct.pack(ROW, row.min, row.max, row.bounds_reported_at, row.boot, row.committed, row.cursor,
    row.revoked_epoch, row.placing, row.served_at, row.last_consumed_at, row.expired, #row.last_client, row.last_client)
end

line_of = function(row)
  return string.format(LINE, row.min, row.max, row.committed, row.cursor, row.last_consumed_at, row.last_client)
end

index_row = function(scope, row)
  local fresh_at = fresh_of(row) > 0 and row.served_at
  if fresh_at ~= row.fresh_at then
    if fresh_at then
      call('ZADD', scope.base .. ':fresh', fresh_at, row.queue)
    else
      call('ZREM', scope.base .. ':fresh', row.queue)
    end
    row.fresh_at = fresh_at
  end
  if row.placing ~= row.was_placing then
    call(row.placing > 0 and 'SADD' or 'SREM', scope.base .. ':placing', row.queue)
    row.was_placing = row.placing
  end
  local emptied = is_emptied(row)
  if emptied ~= row.was_emptied then
    call(emptied and 'SADD' or 'SREM', scope.base .. ':emptied', row.queue)
    row.was_emptied = emptied
  end
  local has_expired = has_expired_grants(row)
  if has_expired then
    call('SADD', scope.base .. ':overtaken', row.queue)
    scope.quiet_until = 0
  elseif row.had_expired then
    call('SREM', scope.base .. ':overtaken', row.queue)
  end
  row.had_expired = has_expired
end

local function open_state(client, closed)
  local scope = scope_of(client)
  if scope then
    scope.closed, scope.grants, scope.touched, scope.unsaved = closed or {}, {}, {}, {}
    scope.was_epoch, scope.was_in_flight, scope.was_quiet_until = scope.epoch, scope.in_flight, scope.quiet_until
  end
  return scope
end

local function read_grant(epoch, packed)
  local start, delivery, granted_at, base_until, serves, again, nonce, lease_expired, open, returned, queue, states,
    client, attempt, fingerprint, ends = struct.unpack(GRANT, packed)
  return {epoch = epoch, queue = queue, start = start, states = {string.byte(states, 1, -1)}, delivery = delivery,
    granted_at = granted_at, base_until = base_until, client = client, serves = serves, again = again == 1,
    attempt = attempt, fingerprint = fingerprint, nonce = nonce, ends = ends ~= '' and cmsgpack.unpack(ends),
    lease_expired = lease_expired, open = open, returned = returned, was_open = open, is_changed = false}
end

local function pack_grant(grant)
  local ends = grant.ends and cmsgpack.pack(grant.ends) or ''
  return struct.pack(GRANT, grant.start, grant.delivery, grant.granted_at, grant.base_until, grant.serves,
    grant.again and 1 or 0, grant.nonce, grant.lease_expired, grant.open, grant.returned, #grant.queue, grant.queue,
    #grant.states, string.char(unpack(grant.states)), #grant.client, grant.client, #grant.attempt, grant.attempt,
    #grant.fingerprint, grant.fingerprint, #ends, ends)
end

local function grant_at(scope, epoch)
  if scope.grants[epoch] == nil then
    local packed = call('HGET', scope.base .. ':grants', epoch)
    scope.grants[epoch] = packed and read_grant(epoch, packed) or false
  end
  return scope.grants[epoch] or nil
end

-- Return the earliest lease end of the open messages.
local function until_of(grant)
  if not grant.ends then return grant.base_until end
  local earliest
  for number, message_state in ipairs(grant.states) do
    if message_state == OPEN then
      earliest = math.min(earliest or math.huge, grant.ends[number] or grant.base_until)
    end
  end
  return earliest or grant.base_until
end

-- Update the indexes of a changed grant. close_state() writes the grant itself.
local function index_grant(scope, grant)
  local base, epoch = scope.base, grant.epoch
  if grant.open > 0 then
    local first, till = 1, until_of(grant)
    while grant.states[first] ~= OPEN do first = first + 1 end
    call('ZADD', base .. ':leases', till, epoch)
    call('ZADD', base .. ':open:' .. grant.queue, grant.start + first - 1, epoch)
    scope.quiet_until = math.min(scope.quiet_until, till)
  elseif grant.was_open > 0 then
    call('ZREM', base .. ':leases', epoch)
    call('ZREM', base .. ':open:' .. grant.queue, epoch)
    call('RPUSH', base .. ':ended', epoch .. ' ' .. NOW)
  end
  grant.was_open, grant.is_changed = grant.open, false
  scope.unsaved[epoch] = grant
end

-- Update the indexes of changed grants and rows, and move committed to the first unsettled message.
local function update_indexes(scope)
  for _, grant in pairs(scope.grants) do
    if grant and grant.is_changed then index_grant(scope, grant) end
  end
  for queue in pairs(scope.touched) do
    local row = queue_of(scope, queue)
    if row then
      local open = call('ZRANGE', scope.base .. ':open:' .. queue, 0, 0, 'WITHSCORES')
      local failed = call('ZRANGE', scope.base .. ':failed:' .. queue, 0, 0)
      local committed = math.min(tonumber(open[2]) or row.cursor, tonumber(failed[1]) or row.cursor)
      if committed ~= row.committed then
        if row.cursor - row.committed >= MAX_SPAN then wake('') end
        row.committed, row.is_changed = committed, true
      end
    end
  end
  scope.touched = {}
  for _, row in pairs(scope.rows) do
    if row and row.is_changed then index_row(scope, row) end
  end
end

local function close_state(scope)
  update_indexes(scope)
  local packed = {}
  for epoch, grant in pairs(scope.unsaved) do
    packed[#packed + 1], packed[#packed + 2] = epoch, pack_grant(grant)
    -- unpack() is limited by the Lua stack.
    if #packed == 1000 then
      call('HSET', scope.base .. ':grants', unpack(packed))
      packed = {}
    end
  end
  if #packed > 0 then call('HSET', scope.base .. ':grants', unpack(packed)) end
  scope.unsaved = {}
  if math.floor(scope.epoch / FORGET_INTERVAL) > math.floor(scope.was_epoch / FORGET_INTERVAL) then
    slow_path().forget_grants(scope)
  end
  if scope.epoch ~= scope.was_epoch or scope.in_flight ~= scope.was_in_flight
    or scope.quiet_until ~= scope.was_quiet_until then
    save(scope, 'epoch', scope.epoch, 'in_flight', scope.in_flight, 'calm', scope.quiet_until)
    scope.was_epoch, scope.was_in_flight, scope.was_quiet_until = scope.epoch, scope.in_flight, scope.quiet_until
  else
    save(scope)
  end
end

-- Apply settlements in order, each to all of its offsets. Return the outcomes, or one entry if all are equal. Wakes
-- parked receives if the group was at max_in_flight.
local function settle_all(scope, settlements)
  local settled, before = {}, scope.in_flight
  for _, settlement in ipairs(settlements) do
    local verb, _, queue, _, _, epoch, incarnation = unpack(settlement)
    local grant = incarnation == scope.incarnation and grant_at(scope, epoch)
    local row = grant and queue_of(scope, queue)
    -- A first delivery that never failed, in an unordered group: an ack only changes the state of the message.
    local is_plain = verb == 'ack' and IS_ORDERED == 0 and row and epoch > row.revoked_epoch and not grant.again
      and not grant.ends and NOW < grant.base_until
    local acked = 0
    for _, offset in ipairs(settlement[12]) do
      local number = is_plain and offset - grant.start + 1
      if is_plain and grant.states[number] == OPEN then
        grant.states[number] = ACKED
        settled[#settled + 1] = 'applied'
        acked = acked + 1
      else
        settled[#settled + 1] = settlement_reply(slow_path().settle(scope, settlement, offset))
      end
    end
    if acked > 0 then
      grant.open, grant.is_changed = grant.open - acked, true
      row.last_consumed_at, row.is_changed = NOW, true
      scope.in_flight = scope.in_flight - acked
      scope.touched[queue] = true
    end
  end
  if scope.in_flight < before and before >= MAX_IN_FLIGHT then wake('') end
  for _, outcome in ipairs(settled) do
    if outcome ~= settled[1] then return settled end
  end
  return {settled[1]}
end

-- Return the number of the last message that was given out; messages after it were released.
local function last_given(grant)
  local last = #grant.states
  while last > 0 and grant.states[last] == NOT_GIVEN do last = last - 1 end
  return last
end

local function grant_of(grant)
  return {grant.queue, grant.start, grant.start + last_given(grant), grant.epoch, grant.delivery, grant.granted_at,
    until_of(grant), grant.serves, grant.serves == 1 and grant.lease_expired or 0}
end
