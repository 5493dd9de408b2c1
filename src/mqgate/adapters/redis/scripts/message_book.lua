-- Message mode: queues, grants and failed messages of one scope during one step, read once and written once.
--
--   <scope>:state          epoch: grants so far; in_flight: messages in open grants; calm: until then time alone does
--                          nothing: no lease ends, nothing is due or dying, or was taken by retention
--   a queue's row          see message_row.lua
--   <scope>:fresh          sorted set, served_at: queues with messages that nobody had yet
--   <scope>:grants         hash: epoch -> grant, see message_row.lua; kept a while after its end, so that a repeated ack is
--                          a duplicate (ended: a list, to forget the oldest)
--   <scope>:leases         sorted set, earliest end: open grants
--   <scope>:open:<queue>   sorted set, first open offset: open grants of a queue
--   <scope>:failed         hash: `<queue> <offset>` -> a message that failed, was given back, or waits for its key
--   <scope>:failed:<queue> sorted set of their offsets;   due: by the time they are ready;   dying: those that must die
--   <scope>:attempts       hash: attemptId -> epochs
--   <scope>:order:<queue>  ordered groups, sorted set: `<key> <offset>` of what is unsettled;  keys:<queue>: offset -> key
--   <scope>:placing        set of queues that have such a grant
--   <scope>:overtaken      set of queues of which retention took messages that were granted before: some may have failed
--   <scope>:emptied        set of queues that retention has emptied behind the cursor, and nobody was told yet
local MEMORY, LEAST_REMEMBERED, PLACING = 600000, 10000, 10000
local MOST_RANGES, MOST_ENDED, MOST_OVERTAKEN = 64, 2000, 1000

local function fresh_of(row)
  return row.max - math.max(row.cursor, row.min)
end

local function is_emptied(row)
  return row.cursor < row.min and row.max <= row.min
end

-- Whether retention took messages of it that were granted, and are not settled.
local function is_overtaken(row)
  return row.committed < row.min and row.committed < row.cursor
end

read_row = function(queue, packed)
  local min, max, told_at, boot, committed, cursor, swept, placing, served_at, last_consumed_at, expired,
    last_client = struct.unpack(ROW, packed)
  return {queue = queue, min = min, max = max, told_at = told_at, boot = boot, committed = committed, cursor = cursor,
    swept = swept, placing = placing, served_at = served_at, last_consumed_at = last_consumed_at, expired = expired,
    last_client = last_client, is_changed = false, was_placing = placing, was_emptied = cursor < min and max <= min,
    was_overtaken = committed < min and committed < cursor,
    fresh_at = max > cursor and max > min and served_at}
end

pack_row = function(row)
  return struct.pack(ROW, row.min, row.max, row.told_at, row.boot, row.committed, row.cursor, row.swept, row.placing,
    row.served_at, row.last_consumed_at, row.expired, #row.last_client, row.last_client)
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
  local overtaken = is_overtaken(row)
  if overtaken then
    call('SADD', scope.base .. ':overtaken', row.queue)
    scope.calm = 0
  elseif row.was_overtaken then
    call('SREM', scope.base .. ':overtaken', row.queue)
  end
  row.was_overtaken = overtaken
end

local function open_book(client, closed)
  local scope = scope_of(client)
  if scope then
    scope.closed, scope.grants, scope.touched, scope.unsaved = closed or {}, {}, {}, {}
    scope.was_epoch, scope.was_in_flight, scope.was_calm = scope.epoch, scope.in_flight, scope.calm
  end
  return scope
end

local function read_grant(epoch, packed)
  local start, delivery, granted_at, base_until, serves, again, nonce, lapsed, open, returned, queue, letters, client,
    attempt, shape, ends = struct.unpack(GRANT, packed)
  return {epoch = epoch, queue = queue, start = start, letters = {string.byte(letters, 1, -1)}, delivery = delivery,
    granted_at = granted_at, base_until = base_until, client = client, serves = serves, again = again == 1,
    attempt = attempt, shape = shape, nonce = nonce, ends = ends ~= '' and cmsgpack.unpack(ends), lapsed = lapsed,
    open = open, returned = returned, was_open = open, is_changed = false}
end

local function pack_grant(grant)
  local ends = grant.ends and cmsgpack.pack(grant.ends) or ''
  return struct.pack(GRANT, grant.start, grant.delivery, grant.granted_at, grant.base_until, grant.serves,
    grant.again and 1 or 0, grant.nonce, grant.lapsed, grant.open, grant.returned, #grant.queue, grant.queue,
    #grant.letters, string.char(unpack(grant.letters)), #grant.client, grant.client, #grant.attempt, grant.attempt,
    #grant.shape, grant.shape, #ends, ends)
end

local function grant_at(scope, epoch)
  if scope.grants[epoch] == nil then
    local packed = call('HGET', scope.base .. ':grants', epoch)
    scope.grants[epoch] = packed and read_grant(epoch, packed) or false
  end
  return scope.grants[epoch] or nil
end

-- The earliest end of its open messages.
local function until_of(grant)
  if not grant.ends then return grant.base_until end
  local earliest
  for number, letter in ipairs(grant.letters) do
    if letter == OPEN then earliest = math.min(earliest or math.huge, (grant.ends[number] or grant.base_until)) end
  end
  return earliest or grant.base_until
end

-- Put a changed grant where the indexes want it; it is written when the book is closed.
local function index_grant(scope, grant)
  local base, epoch = scope.base, grant.epoch
  if grant.open > 0 then
    local first, till = 1, until_of(grant)
    while grant.letters[first] ~= OPEN do first = first + 1 end
    call('ZADD', base .. ':leases', till, epoch)
    call('ZADD', base .. ':open:' .. grant.queue, grant.start + first - 1, epoch)
    scope.calm = math.min(scope.calm, till)
  elseif grant.was_open > 0 then
    call('ZREM', base .. ':leases', epoch)
    call('ZREM', base .. ':open:' .. grant.queue, epoch)
    call('RPUSH', base .. ':ended', epoch .. ' ' .. NOW)
  end
  grant.was_open, grant.is_changed = grant.open, false
  scope.unsaved[epoch] = grant
end

-- Bring the indexes up to date; committed moves to the first message that is not settled, before it is asked for.
local function take_stock(scope)
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

local function close_book(scope)
  take_stock(scope)
  local packed = {}
  for epoch, grant in pairs(scope.unsaved) do
    packed[#packed + 1], packed[#packed + 2] = epoch, pack_grant(grant)
    -- More arguments than Lua can pass.
    if #packed == 1000 then
      call('HSET', scope.base .. ':grants', unpack(packed))
      packed = {}
    end
  end
  if #packed > 0 then call('HSET', scope.base .. ':grants', unpack(packed)) end
  scope.unsaved = {}
  if math.floor(scope.epoch / FORGETTING) > math.floor(scope.was_epoch / FORGETTING) then book().forget_grants(scope) end
  if scope.epoch ~= scope.was_epoch or scope.in_flight ~= scope.was_in_flight or scope.calm ~= scope.was_calm then
    save(scope, 'epoch', scope.epoch, 'in_flight', scope.in_flight, 'calm', scope.calm)
    scope.was_epoch, scope.was_in_flight, scope.was_calm = scope.epoch, scope.in_flight, scope.calm
  else
    save(scope)
  end
end

-- Settle in the given order, each settlement for all of its offsets: the outcomes, or one if all are the same. Whoever
-- waits for a place below the cap hears of it.
local function settle_all(scope, settlements)
  local settled, before = {}, scope.in_flight
  for _, settlement in ipairs(settlements) do
    local verb, _, queue, _, _, epoch, incarnation = unpack(settlement)
    local grant = incarnation == scope.incarnation and grant_at(scope, epoch)
    local row = grant and queue_of(scope, queue)
    -- Of a first delivery that never came back, without order, an ack is a letter and nothing else.
    local is_plain = verb == 'ack' and IS_ORDERED == 0 and row and epoch > row.swept and not grant.again and not grant.ends
      and NOW < grant.base_until
    local acked = 0
    for _, offset in ipairs(settlement[12]) do
      local number = is_plain and offset - grant.start + 1
      if is_plain and grant.letters[number] == OPEN then
        grant.letters[number] = ACKED
        settled[#settled + 1] = 'applied'
        acked = acked + 1
      else
        settled[#settled + 1] = told(book().settle(scope, settlement, offset))
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
  for _, each in ipairs(settled) do
    if each ~= settled[1] then return settled end
  end
  return {settled[1]}
end

-- How far a grant goes: what went back behind it was never given.
local function last_given(grant)
  local last = #grant.letters
  while last > 0 and grant.letters[last] == NOT_GIVEN do last = last - 1 end
  return last
end

local function grant_of(grant)
  return {grant.queue, grant.start, grant.start + last_given(grant), grant.epoch, grant.delivery, grant.granted_at,
    until_of(grant), grant.serves, grant.serves == 1 and grant.lapsed or 0}
end
