-- Queue and broadcast mode: queues of one scope during one step, read once and written once.
--
--   a queue's row          see queue_row.lua
--   <scope>:state          calm: until then time alone does nothing: no lease ends, no queue is old, none is exhausted
--   <scope>:free           sorted set, -backlog: `<last consumed> <queue>` of what could be granted now
--   <scope>:held           sorted set, free_at: queues that are not free
--   <scope>:aged           sorted set, waiting_since: the free ones by their age
--   <scope>:exhausted      set: queues whose first message was granted for the last time
--   <scope>:emptied        set: free queues that retention has emptied, and nobody was told yet
--   <scope>:attempts       hash: attemptId -> queue
--   <scope>:unacked        hash: `<queue> <epoch>` -> ended_by, of older grants that ended in any way but an ack: what is
--                          not there was acked, so that an ack has nothing to write; unacked:order remembers when
--
-- `free` is exact. Of `held` and `aged` a grant would have to write both, and an ack as well, for something that is
-- asked for when a lease ends: so an entry may be too early, or of a queue that is not held or free any more, but none
-- is missing or late. Who meets one puts it right.
local MEMORY, LEAST_REMEMBERED = 600000, 10000

local function backlog_of(row)
  return row.max - math.max(row.committed, row.min)
end

-- Whether a queue could be granted now.
local function is_free(row)
  return row.free_at == 0 and row.exhausted == 0 and row.max > row.committed and row.max > row.min
end

-- Whether retention took all that was left of it, and nobody was told.
local function is_emptied(row)
  return row.committed < row.min and row.max <= row.min and row.free_at == 0 and row.exhausted == 0
end

-- How it is listed then: those that were consumed less recently before the others.
local function name_of(row)
  return string.format(NAME, row.last_consumed_at, row.queue)
end

-- As it is made, a table has room for all members: to let it grow takes longer than to read the row.
read_row = function(queue, packed)
  local min, max, told_at, boot, committed, epoch, ended_by, swept, forgotten, batch_end, granted_at, locked_until,
    free_at, serves, returned, nonce, attempts, exhausted, first_at, lapsed, waiting_since, last_consumed_at, expired,
    held_at, aged_at, locked_by, attempt, shape, reason = struct.unpack(ROW, packed)
  local row = {queue = queue, min = min, max = max, told_at = told_at, boot = boot, committed = committed, epoch = epoch,
    ended_by = ended_by, swept = swept, forgotten = forgotten, batch_end = batch_end, granted_at = granted_at,
    locked_until = locked_until, free_at = free_at, serves = serves, returned = returned, nonce = nonce,
    attempts = attempts, exhausted = exhausted, first_at = first_at, lapsed = lapsed, waiting_since = waiting_since,
    last_consumed_at = last_consumed_at, expired = expired, held_at = held_at, aged_at = aged_at, locked_by = locked_by,
    attempt = attempt, shape = shape, reason = reason,
    is_changed = false, was_exhausted = exhausted, was_emptied = false, listed = false, score = 0}
  if is_free(row) then
    row.listed, row.score = name_of(row), -backlog_of(row)
  else
    row.was_emptied = is_emptied(row)
  end
  return row
end

pack_row = function(row)
  return struct.pack(ROW, row.min, row.max, row.told_at, row.boot, row.committed, row.epoch, row.ended_by, row.swept,
    row.forgotten, row.batch_end, row.granted_at, row.locked_until, row.free_at, row.serves, row.returned, row.nonce,
    row.attempts, row.exhausted, row.first_at, row.lapsed, row.waiting_since, row.last_consumed_at, row.expired,
    row.held_at, row.aged_at, #row.locked_by, row.locked_by, #row.attempt, row.attempt, #row.shape, row.shape,
    #row.reason, row.reason)
end

line_of = function(row)
  return string.format(LINE, row.min, row.max, row.committed, row.epoch, row.attempts, row.locked_until,
    row.last_consumed_at, row.locked_by)
end

-- Put a changed queue where the indexes want it.
index_row = function(scope, row)
  local base = scope.base
  local listed, score = is_free(row) and name_of(row), -backlog_of(row)
  if row.listed and row.listed ~= listed then call('ZREM', base .. ':free', row.listed) end
  if listed and (row.listed ~= listed or row.score ~= score) then call('ZADD', base .. ':free', score, listed) end
  row.listed, row.score = listed, score
  local free_at = row.free_at
  if free_at > 0 and (row.held_at == 0 or free_at < row.held_at) then
    book().put(scope, row, 'held', free_at)
    book().disturb(scope, free_at)
  end
  if listed and (row.aged_at == 0 or row.waiting_since < row.aged_at) then
    book().put(scope, row, 'aged', row.waiting_since)
    book().disturb(scope, row.waiting_since + AGEING)
  end
  if row.exhausted ~= row.was_exhausted then
    call(row.exhausted > 0 and 'SADD' or 'SREM', base .. ':exhausted', row.queue)
    row.was_exhausted = row.exhausted
  end
  local emptied = is_emptied(row)
  if emptied ~= row.was_emptied then
    call(emptied and 'SADD' or 'SREM', base .. ':emptied', row.queue)
    row.was_emptied = emptied
  end
  if row.exhausted > 0 then book().disturb(scope, 0) end
end

-- Consumers stand at another message, which was not granted yet; nobody has the newest batch any more.
local function stand_at(scope, row, offset)
  if row.attempt ~= '' then book().leave_attempt(scope, row) end
  row.committed, row.locked_until, row.free_at, row.serves, row.is_changed = offset, NOW, 0, 0, true
  row.attempts, row.exhausted, row.first_at, row.reason = 0, 0, 0, ''
end

-- The next epoch. How the one before ended is noted, unless by an ack.
local function next_epoch(scope, row)
  if row.ended_by ~= ACKED then book().note_end(scope, row) end
  row.epoch, row.ended_by = row.epoch + 1, 0
end

local opened
book = function()
  if opened then return opened end
  local B = {}
  opened = B

  function B.leave_attempt(scope, row)
    if row.attempt ~= '' then
      if call('HGET', scope.base .. ':attempts', row.attempt) == row.queue then
        call('HDEL', scope.base .. ':attempts', row.attempt)
      end
      row.attempt = ''
    end
  end

  -- Nobody has the newest batch any more, and it did not end by itself.
  function B.unlock(scope, row, free_at)
    B.leave_attempt(scope, row)
    row.locked_until, row.free_at, row.serves, row.is_changed = NOW, free_at, 0, true
  end

  function B.front_of(row) return row.committed end
  -- Here nothing is settled out of turn.
  function B.done_around() return 0, 0 end
  -- By the log's clock, if it has told when.
  function B.rising(row, rose) row.waiting_since = rose and math.min(rose, NOW) or NOW end

  function B.open(client) return scope_of(client) end
  B.close = save

  function B.new_row(queue, head, start)
    local _, min, max, boot = unpack(head)
    return {queue = queue, is_changed = true, was_exhausted = 0, was_emptied = false, listed = false, score = 0, min = min,
      max = max, told_at = NOW, boot = boot or 0, committed = start, epoch = 0, ended_by = ACKED, swept = 0, forgotten = 0,
      batch_end = 0, granted_at = 0, locked_until = 0, free_at = 0, serves = 0, returned = 0, nonce = 0, attempts = 0,
      exhausted = 0, first_at = 0, lapsed = 0, waiting_since = NOW, last_consumed_at = 0, expired = 0, held_at = 0,
      aged_at = 0, locked_by = '', attempt = '', shape = '', reason = ''}
  end

  -- Something will happen by time alone.
  function B.disturb(scope, at)
    if at < scope.calm then
      scope.calm = at
      call('HSET', scope.base .. ':state', 'calm', at)
    end
  end

  function B.put(scope, row, index, at)
    if at > 0 then
      call('ZADD', scope.base .. ':' .. index, at, row.queue)
    else
      call('ZREM', scope.base .. ':' .. index, row.queue)
    end
    row[index .. '_at'] = at
  end

  -- The first entry of `held` or `aged`, put right: its queue and its score; nil if there is none until then.
  function B.first_of(scope, index, closed, till)
    local key, from = scope.base .. ':' .. index, 0
    while true do
      local found = call('ZRANGE', key, from, from, 'WITHSCORES')
      local queue, score = found[1], tonumber(found[2])
      if not queue or score > till then return nil end
      local row = queue_of(scope, queue)
      local right = row.free_at
      if index == 'aged' then right = is_free(row) and row.waiting_since or 0 end
      if right ~= score then
        B.put(scope, row, index, right)
        row.is_changed = true
      elseif closed[queue] then
        from = from + 1
      else
        return row, score
      end
    end
  end

  -- Put a queue elsewhere; whatever was leased there is swept away.
  function B.move_queue(scope, row, to)
    stand_at(scope, row, to)
    next_epoch(scope, row)
    -- Nobody has a receipt of this one.
    row.ended_by, row.swept, row.waiting_since = ACKED, row.epoch, NOW
  end

  -- A message failed for the last time: from here on nobody can settle it.
  function B.doom(scope, row)
    if row.exhausted < 2 then
      B.leave_attempt(scope, row)
      next_epoch(scope, row)
      -- What an earlier delivery failed of is not what the last one did, if that ended by itself.
      if row.serves > 0 then row.reason = '' end
      -- Nobody has a receipt of this one.
      row.ended_by, row.exhausted, row.is_changed = ACKED, 2, true
    end
    local reason = row.reason ~= '' and row.reason or 'the lease ended without an answer'
    return {scope.client, row.queue, row.committed, row.batch_end, row.epoch, scope.incarnation, row.attempts, row.first_at,
      math.min(row.locked_until, NOW), reason, row.serves > 0}
  end

  -- What time has done: leases that ended free their queues, or doom their message if it was the last attempt.
  function B.free_and_doom(scope, closed, doomed)
    for _, queue in ipairs(call('ZRANGEBYSCORE', scope.base .. ':held', '-inf', NOW)) do
      local row = queue_of(scope, queue)
      if row.free_at <= NOW then row.free_at = 0 end
      B.put(scope, row, 'held', row.free_at)
      row.is_changed = true
    end
    for _, queue in ipairs(call('SMEMBERS', scope.base .. ':exhausted')) do
      local row = queue_of(scope, queue)
      if row.free_at == 0 and row.exhausted > 0 and not closed[queue] then
        if row.attempts < MAX_ATTEMPTS or row.committed < row.min then
          -- The limit was raised, or retention was quicker.
          row.exhausted, row.attempts, row.is_changed = 0, row.committed >= row.min and row.attempts or 0, true
        elseif DIES == 1 then
          doomed[#doomed + 1] = B.doom(scope, row)
        end
      end
    end
  end

  -- Whether a free queue's first message had all its attempts, because the limit was lowered since: then this was the last.
  function B.is_exhausted(scope, row, doomed)
    if row.attempts < MAX_ATTEMPTS or row.committed < row.min then return false end
    row.exhausted, row.is_changed = 1, true
    if DIES == 1 then doomed[#doomed + 1] = B.doom(scope, row) end
    return true
  end

  -- Old ends are forgotten, some at a time: to settle one of that age is `gone` from then on. How many there are counts
  -- for the whole group: of a broadcast group all clients together.
  function B.note_end(scope, row)
    local ends, order, name = scope.base .. ':unacked', scope.base .. ':unacked:order', row.queue .. ' ' .. row.epoch
    call('HSET', ends, name, row.ended_by)
    local count, names = call('RPUSH', order, name .. ' ' .. NOW), {}
    if scope.client ~= '' then count = call('HINCRBY', G .. ':remembered', 'receipts', 1) end
    if count <= LEAST_REMEMBERED then return end
    for _, entry in ipairs(call('LRANGE', order, 0, math.min(count - LEAST_REMEMBERED, 64) - 1)) do
      local old, queue, epoch, at = entry:match('^((.*) (%d+)) (%d+)$')
      if tonumber(at) > NOW - MEMORY then break end
      names[#names + 1] = old
      local its = queue_of(scope, queue)
      if its then its.forgotten, its.is_changed = math.max(its.forgotten, epoch), true end
    end
    if #names == 0 then return end
    call('LTRIM', order, #names, -1)
    call('HDEL', ends, unpack(names))
    if scope.client ~= '' then call('HINCRBY', G .. ':remembered', 'receipts', -#names) end
  end

  return B
end

local function judge(scope, row, verb, queue, start, epoch, incarnation)
  if incarnation ~= scope.incarnation or epoch <= row.forgotten then return 'gone' end
  local ended_by = row.ended_by
  if epoch < row.epoch then
    ended_by = tonumber(call('HGET', scope.base .. ':unacked', queue .. ' ' .. epoch) or ACKED)
  end
  if ended_by > 0 then return (ended_by == ACKED and 'ack' or 'nack') == verb and 'duplicate' or 'lost' end
  if epoch <= row.swept then return 'gone' end
  if epoch ~= row.epoch then return start < row.min and 'gone' or 'lost' end
  if start ~= row.committed then return 'gone' end
  return NOW < row.locked_until and 'applied' or 'late_applied'
end

-- One ack, nack or extend; what is refused changes nothing. The outcome; what dies of it; until when it was extended.
local function settle(scopes, settlement)
  local verb, client, queue, start, after, epoch, incarnation, visibility, through, delay, reason = unpack(settlement)
  local scope = scopes(client, queue)
  local row = scope and queue_of(scope, queue)
  if not row then return 'gone' end
  local outcome = judge(scope, row, verb, queue, start, epoch, incarnation)
  if not is_applied(outcome) then return outcome end
  if verb == 'extend' then
    local till = NOW + visibility
    if till > row.granted_at + LONGEST_HOLD then return 'too_long' end
    row.locked_until, row.free_at, row.is_changed = till, till + backoff(row.attempts), true
    return outcome, nil, till
  end
  row.ended_by = verb == 'ack' and ACKED or NACKED
  if verb == 'ack' then
    stand_at(scope, row, through and through + 1 or after)
    row.last_consumed_at, scope.is_freed = NOW, true
    return outcome
  end
  local is_dead = row.attempts >= MAX_ATTEMPTS and DIES == 1
  local free_at = NOW
  if not is_dead then free_at = NOW + (delay or backoff(row.attempts)) end
  book().unlock(scope, row, free_at > NOW and free_at or 0)
  row.reason = reason or 'nacked'
  wake(scope.client, free_at)
  return outcome, is_dead and book().doom(scope, row) or nil
end

-- The scopes of a step's settlements, each read once, with the queue that is wanted first.
local function scopes_of()
  local known = {}
  return function(client, queue)
    if known[client] == nil then known[client] = scope_of(client, true, queue) or false end
    return known[client] or nil
  end, known
end

local function save_all(known)
  for _, scope in pairs(known) do
    if scope then save(scope) end
  end
end

