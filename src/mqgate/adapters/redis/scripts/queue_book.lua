-- Queue and broadcast mode: queues of one scope during one step, read once and written once.
--
--   <scope>:queue:<queue>  min, max                ends, as last told; told_at: when max last was
--                          committed               the first message not consumed
--                          locked_until, locked_by the lock: until when, whose; held 1: not granted before free_at
--                          last_consumed_at        when committed last moved by an ack
--                          epoch, swept            grants so far; those up to `swept` are gone (seek, or too old to tell)
--                          batch_end, granted_at, attempt, shape, serves, nonce   the newest batch; serves 0: it was
--                          ended by somebody, not by itself; lapsed: so many of the batch before ended by themselves
--                          attempts, exhausted, first_at, reason   grants at this offset; 1: the last one was, 2: it dies
--                          waiting_since, expired, boot, listed
--   <scope>:free           sorted set, -backlog: `<last consumed> <queue>` of what could be granted now
--   <scope>:aged           sorted set, waiting_since: the same queues by their age
--   <scope>:held           sorted set, free_at: queues that are not free
--   <scope>:exhausted      set: queues whose first message was granted for the last time
--   <scope>:attempts       hash: attemptId -> queue
--   <scope>:spent          hash: `<queue> <epoch>` -> verb; spent:order remembers when, to forget the oldest
FIELDS = {'min', 'max', 'committed', 'epoch', 'swept', 'batch_end', 'granted_at', 'locked_until', 'held', 'free_at',
  'serves', 'attempts', 'exhausted', 'first_at', 'waiting_since', 'last_consumed_at', 'expired', 'told_at', 'boot',
  'lapsed', 'attempt', 'shape', 'reason', 'locked_by', 'nonce', 'listed'}
NUMBERS = 20
local MEMORY, LEAST_REMEMBERED = 600000, 10000

front_of = function(row) return row.committed end
rising = function(row) change(row, 'waiting_since', NOW) end

local function backlog_of(row)
  return row.max - math.max(row.committed, row.min)
end

-- Whether a queue could be granted now.
local function is_free(row)
  return row.held == 0 and row.exhausted == 0 and backlog_of(row) > 0
end

-- How it is listed then: those that were consumed less recently before the others.
local function name_of(row)
  return string.format('%015d %s', row.last_consumed_at, row.queue)
end

-- Put a changed queue where the indexes want it.
save_queue = function(scope, row)
  local base, queue = scope.base, row.queue
  local listed = ''
  if is_free(row) then
    listed = name_of(row)
    call('ZADD', base .. ':free', -backlog_of(row), listed)
    call('ZADD', base .. ':aged', row.waiting_since, queue)
  end
  if row.listed ~= listed then
    if row.listed ~= '' then call('ZREM', base .. ':free', row.listed) end
    if listed == '' then call('ZREM', base .. ':aged', queue) end
    change(row, 'listed', listed)
  end
  if row.held == 1 and (row.changes.held or row.changes.free_at) then
    call('ZADD', base .. ':held', row.free_at, queue)
  elseif row.changes.held == 0 then
    call('ZREM', base .. ':held', queue)
  end
  if row.changes.exhausted then
    call(row.exhausted > 0 and 'SADD' or 'SREM', base .. ':exhausted', queue)
  end
end

local function leave_attempt(scope, row)
  if row.attempt ~= '' then
    if call('HGET', scope.base .. ':attempts', row.attempt) == row.queue then
      call('HDEL', scope.base .. ':attempts', row.attempt)
    end
    change(row, 'attempt', '')
  end
end

-- Put a queue elsewhere; whatever was leased there is swept away.
move_queue = function(scope, row, to)
  leave_attempt(scope, row)
  change(row, 'committed', to, 'epoch', row.epoch + 1, 'swept', row.epoch + 1, 'locked_until', NOW, 'held', 0,
    'serves', 0, 'attempts', 0, 'exhausted', 0, 'first_at', 0, 'reason', '', 'waiting_since', NOW)
end

local function lease_of(scope, row)
  return {client = scope.client, queue = row.queue, start = row.committed, next = row.batch_end,
    epoch = row.epoch, incarnation = scope.incarnation}
end

local function grant_of(scope, row)
  return {lease = lease_of(scope, row), delivery = row.attempts, granted_at = row.granted_at, until_ms = row.locked_until,
    serve = row.serves, lapsed = row.serves == 1 and row.lapsed or 0}
end

-- A message failed for the last time: from here on nobody can settle it.
local function doom(scope, row)
  if row.exhausted < 2 then
    leave_attempt(scope, row)
    change(row, 'exhausted', 2, 'epoch', row.epoch + 1)
  end
  return {lease = lease_of(scope, row), deliveries = row.attempts, first_at = row.first_at,
    last_at = math.min(row.locked_until, NOW),
    reason = row.reason ~= '' and row.reason or 'the lease ended without an answer', lapsed = row.serves > 0}
end

-- What time has done: leases that ended free their queues, or doom their message if it was the last attempt.
local function free_and_doom(scope, closed, doomed)
  for _, queue in ipairs(call('ZRANGEBYSCORE', scope.base .. ':held', '-inf', NOW)) do
    -- A settlement of this very step may hold it for longer than the index knows.
    local row = queue_of(scope, queue)
    if row.free_at <= NOW then change(row, 'held', 0) end
  end
  if call('SCARD', scope.base .. ':exhausted') == 0 then return end
  for _, queue in ipairs(call('SMEMBERS', scope.base .. ':exhausted')) do
    local row = queue_of(scope, queue)
    if row.held == 0 and row.exhausted > 0 and not closed[queue] then
      if row.attempts < GROUP.max_attempts or row.committed < row.min then
        -- The limit was raised, or retention was quicker.
        change(row, 'exhausted', 0, 'attempts', row.committed >= row.min and row.attempts or 0)
      elseif GROUP.dies then
        doomed[#doomed + 1] = doom(scope, row)
      end
    end
  end
end

-- The first queue of an index for which it is so, with its score and its name there.
local function first_of(key, is_so, of)
  -- Mostly it is the first or the second.
  local from, page = 0, 2
  repeat
    local found = call('ZRANGE', key, from, from + page - 1, 'WITHSCORES')
    for i = 1, #found, 2 do
      local queue = of and of(found[i]) or found[i]
      if is_so(queue) then return queue, tonumber(found[i + 1]), found[i] end
    end
    from, page = from + page, 16
  until #found == 0
end

-- The best queue: of an index, but for those that this step has looked at; these are judged as they are now.
local function best_of(scope, closed, key, place, of)
  local function is_so(queue) return not closed[queue] and not scope.rows[queue] end
  local best, score, name = first_of(key, is_so, of)
  for queue, row in pairs(scope.rows) do
    if row and is_free(row) and not closed[queue] then
      local own_score, own_name = place(row)
      if not best or own_score < score or (own_score == score and own_name < name) then
        best, score, name = queue, own_score, own_name
      end
    end
  end
  return best, score
end

local function choose(scope, closed)
  local function by_age(row) return row.waiting_since, row.queue end
  local function by_backlog(row) return -backlog_of(row), name_of(row) end
  local oldest, since = best_of(scope, closed, scope.base .. ':aged', by_age)
  if not oldest then return nil end
  if since + 30000 <= NOW then return queue_of(scope, oldest) end
  local function queue_in(name) return name:sub(17) end
  return queue_of(scope, (best_of(scope, closed, scope.base .. ':free', by_backlog, queue_in)))
end

-- Whether there is backlog although nothing could be chosen: held, stopped, or closed.
local function is_busy(scope)
  if call('ZCARD', scope.base .. ':aged') > 0 then return true end
  for _, index in ipairs({call('ZRANGE', scope.base .. ':held', 0, -1), call('SMEMBERS', scope.base .. ':exhausted')}) do
    for _, queue in ipairs(index) do
      if backlog_of(queue_of(scope, queue)) > 0 then return true end
    end
  end
  return false
end

-- Forget spent receipts that are old enough, a few at a time; settling one again is `gone` from then on.
-- How many there are counts for the whole group: of a broadcast group all clients together.
local function forget_spent(scope, count)
  local order, gone = scope.base .. ':spent:order', 0
  while gone < 4 and count - gone > LEAST_REMEMBERED do
    local queue, epoch, at = unpack(cmsgpack.unpack(call('LINDEX', order, 0)))
    if at > NOW - MEMORY then break end
    call('LPOP', order)
    call('HDEL', scope.base .. ':spent', queue .. ' ' .. epoch)
    local row = queue_of(scope, queue)
    if row then change(row, 'swept', math.max(row.swept, epoch)) end
    gone = gone + 1
  end
  if gone > 0 and scope.client ~= '' then call('HINCRBY', G .. ':remembered', 'receipts', -gone) end
end

local function spend(scope, lease, verb)
  call('HSET', scope.base .. ':spent', lease.queue .. ' ' .. lease.epoch, verb)
  local count = call('RPUSH', scope.base .. ':spent:order', cmsgpack.pack({lease.queue, lease.epoch, NOW}))
  if scope.client ~= '' then count = call('HINCRBY', G .. ':remembered', 'receipts', 1) end
  forget_spent(scope, count)
end

-- Committed moves, and the queue is free.
local function commit(scope, row, after)
  leave_attempt(scope, row)
  change(row, 'committed', after, 'locked_until', NOW, 'held', 0, 'serves', 0, 'attempts', 0, 'exhausted', 0,
    'first_at', 0, 'reason', '', 'last_consumed_at', NOW)
end

local function judge(scope, row, settlement)
  local lease = settlement.lease
  if lease.incarnation ~= scope.incarnation then return 'gone' end
  -- The newest batch, while nobody has ended it, was not settled either.
  if lease.epoch ~= row.epoch or row.serves == 0 then
    local spent_by = call('HGET', scope.base .. ':spent', lease.queue .. ' ' .. lease.epoch)
    if spent_by then return spent_by == settlement.verb and 'duplicate' or 'lost' end
  end
  if lease.epoch <= row.swept then return 'gone' end
  if lease.epoch ~= row.epoch then return 'lost' end
  if lease.start ~= row.committed then return 'gone' end
  return NOW < row.locked_until and 'applied' or 'late_applied'
end

-- One ack, nack or extend; what is refused changes nothing.
local function settle(scopes, settlement)
  local lease = settlement.lease
  local scope = scopes(lease.client)
  local row = scope and queue_of(scope, lease.queue)
  if not row then return {outcome = 'gone'} end
  local outcome = judge(scope, row, settlement)
  if not is_applied(outcome) then return {outcome = outcome} end
  if settlement.verb == 'extend' then
    local till = NOW + settlement.visibility
    if till > row.granted_at + R.longest_hold then return {outcome = 'too_long'} end
    change(row, 'locked_until', till, 'held', 1, 'free_at', till + backoff(row.attempts))
    return {outcome = outcome, until_ms = till}
  end
  spend(scope, lease, settlement.verb)
  if settlement.verb == 'ack' then
    commit(scope, row, settlement.through and settlement.through + 1 or lease.next)
    scope.is_freed = true
    return {outcome = outcome}
  end
  local is_dead = row.attempts >= GROUP.max_attempts and GROUP.dies
  local free_at = NOW
  if not is_dead then free_at = NOW + (settlement.delay or backoff(row.attempts)) end
  leave_attempt(scope, row)
  change(row, 'locked_until', NOW, 'held', free_at > NOW and 1 or 0, 'free_at', free_at, 'serves', 0,
    'reason', settlement.reason or 'nacked')
  wake(scope.client, free_at)
  return {outcome = outcome, doomed = is_dead and doom(scope, row) or nil}
end

-- The scopes of a step's settlements, each read once.
local function scopes_of()
  local known = {}
  return function(client)
    if known[client] == nil then known[client] = scope_of(client, true) or false end
    return known[client] or nil
  end, known
end

local function save_all(known)
  for _, scope in pairs(known) do
    if scope then save(scope) end
  end
end

local function open_book(client) return scope_of(client) end
local close_book = save
