-- Queue and broadcast mode: the rows of one scope. A step reads each row once and writes it once.
--
--   row of a queue         see queue_row.lua
--   <scope>:state          field `calm` (here quiet_until): before this instant no lease ends, no queue reaches the age
--                          limit and no message is exhausted
--   <scope>:free           sorted set by -backlog: `<last consumed> <queue>` of queues that can be granted now
--   <scope>:held           sorted set by free_at: queues that are not free
--   <scope>:aged           sorted set by waiting_since: free queues
--   <scope>:exhausted      set: queues whose first message was granted for the last time
--   <scope>:emptied        set: free queues that retention has emptied, until a receive has reported it
--   <scope>:attempts       hash: attemptId -> queue
--   <scope>:unacked        hash: `<queue> <epoch>` -> ended_by of older leases that were not acked. A lease that is not
--                          in it was acked, so an ack writes nothing
--   <scope>:unacked:order  list: the fields of `unacked` with their time, oldest first
--
-- `free` is exact. `held` and `aged` are not, because every grant and ack would have to write both: an entry may be too
-- early, or its queue may no longer be held or free, but no entry is missing or late. `first_of` corrects the entries
-- that it reads.
local REMEMBERED_MS, MIN_REMEMBERED = 600000, 10000

local function backlog_of(row)
  return row.max - math.max(row.committed, row.min)
end

local function is_free(row)
  return row.free_at == 0 and row.exhausted == 0 and row.max > row.committed and row.max > row.min
end

-- Return whether retention has deleted the whole backlog, and no receive has reported it yet.
local function is_emptied(row)
  return row.committed < row.min and row.max <= row.min and row.free_at == 0 and row.exhausted == 0
end

-- Return the member of `free`.
local function name_of(row)
  return string.format(NAME, row.last_consumed_at, row.queue)
end

-- All members are in the constructor: growing the table takes longer than unpacking the row.
read_row = function(queue, packed)
  local min, max, bounds_reported_at, boot, committed, epoch, ended_by, revoked_epoch, forgotten, batch_end, granted_at,
    locked_until, free_at, serves, returned, nonce, attempts, exhausted, first_at, lease_expired, waiting_since,
    last_consumed_at, expired, held_at, aged_at, locked_by, attempt, fingerprint, reason = struct.unpack(ROW, packed)
  local row = {queue = queue, min = min, max = max, bounds_reported_at = bounds_reported_at, boot = boot,
    committed = committed, epoch = epoch, ended_by = ended_by, revoked_epoch = revoked_epoch, forgotten = forgotten,
    batch_end = batch_end, granted_at = granted_at, locked_until = locked_until, free_at = free_at, serves = serves,
    returned = returned, nonce = nonce, attempts = attempts, exhausted = exhausted, first_at = first_at,
    lease_expired = lease_expired, waiting_since = waiting_since, last_consumed_at = last_consumed_at,
    expired = expired, held_at = held_at, aged_at = aged_at, locked_by = locked_by, attempt = attempt,
    fingerprint = fingerprint, reason = reason, is_changed = false, was_exhausted = exhausted, was_emptied = false,
      listed = false, score = 0}
  if is_free(row) then
    row.listed, row.score = name_of(row), -backlog_of(row)
  else
    row.was_emptied = is_emptied(row)
  end
  return row
end

pack_row = function(row)
  return struct.pack(ROW, row.min, row.max, row.bounds_reported_at, row.boot, row.committed, row.epoch, row.ended_by,
    row.revoked_epoch, row.forgotten, row.batch_end, row.granted_at, row.locked_until, row.free_at, row.serves,
    row.returned, row.nonce, row.attempts, row.exhausted, row.first_at, row.lease_expired, row.waiting_since,
    row.last_consumed_at, row.expired, row.held_at, row.aged_at, #row.locked_by, row.locked_by, #row.attempt,
    row.attempt, #row.fingerprint, row.fingerprint, #row.reason, row.reason)
end

line_of = function(row)
  return string.format(LINE, row.min, row.max, row.committed, row.epoch, row.attempts, row.locked_until,
    row.last_consumed_at, row.locked_by)
end

-- Update the indexes of a changed row.
index_row = function(scope, row)
  local base = scope.base
  local listed, score = is_free(row) and name_of(row), -backlog_of(row)
  if row.listed and row.listed ~= listed then call('ZREM', base .. ':free', row.listed) end
  if listed and (row.listed ~= listed or row.score ~= score) then call('ZADD', base .. ':free', score, listed) end
  row.listed, row.score = listed, score
  local free_at = row.free_at
  if free_at > 0 and (row.held_at == 0 or free_at < row.held_at) then
    slow_path().put(scope, row, 'held', free_at)
    slow_path().lower_quiet_until(scope, free_at)
  end
  if listed and (row.aged_at == 0 or row.waiting_since < row.aged_at) then
    slow_path().put(scope, row, 'aged', row.waiting_since)
    slow_path().lower_quiet_until(scope, row.waiting_since + MAX_UNSERVED_MS)
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
  if row.exhausted > 0 then slow_path().lower_quiet_until(scope, 0) end
end

-- Move committed to a message that has not been granted. This ends the newest lease.
local function move_committed(scope, row, offset)
  if row.attempt ~= '' then slow_path().drop_attempt(scope, row) end
  row.committed, row.locked_until, row.free_at, row.serves, row.is_changed = offset, NOW, 0, 0, true
  row.attempts, row.exhausted, row.first_at, row.reason = 0, 0, 0, ''
end

-- Start the next epoch. The end of the last lease is remembered unless it was an ack.
local function next_epoch(scope, row)
  if row.ended_by ~= ACKED then slow_path().remember_end(scope, row) end
  row.epoch, row.ended_by = row.epoch + 1, 0
end

local slow_path_functions
slow_path = function()
  if slow_path_functions then return slow_path_functions end
  local own = {}
  slow_path_functions = own

  function own.drop_attempt(scope, row)
    if row.attempt ~= '' then
      if call('HGET', scope.base .. ':attempts', row.attempt) == row.queue then
        call('HDEL', scope.base .. ':attempts', row.attempt)
      end
      row.attempt = ''
    end
  end

  -- End the newest lease before it expires.
  function own.unlock(scope, row, free_at)
    own.drop_attempt(scope, row)
    row.locked_until, row.free_at, row.serves, row.is_changed = NOW, free_at, 0, true
  end

  function own.position_of(row) return row.committed end
  -- In these modes messages are settled in order.
  function own.count_settled_around() return 0, 0 end
  -- Messages arrived in an empty queue; use their store time if it was reported.
  function own.note_first_append(row, last_append_ms)
    row.waiting_since = last_append_ms and math.min(last_append_ms, NOW) or NOW
  end

  function own.open(client) return scope_of(client) end
  own.close = save

  function own.new_row(queue, queue_bounds, start)
    local _, min, max, boot = unpack(queue_bounds)
    return {queue = queue, is_changed = true, was_exhausted = 0, was_emptied = false, listed = false, score = 0,
      min = min, max = max, bounds_reported_at = NOW, boot = boot or 0, committed = start, epoch = 0, ended_by = ACKED,
      revoked_epoch = 0, forgotten = 0, batch_end = 0, granted_at = 0, locked_until = 0, free_at = 0, serves = 0,
      returned = 0, nonce = 0, attempts = 0, exhausted = 0, first_at = 0, lease_expired = 0, waiting_since = NOW,
      last_consumed_at = 0, expired = 0, held_at = 0, aged_at = 0, locked_by = '', attempt = '', fingerprint = '',
        reason = ''}
  end

  -- Lower quiet_until to `at`.
  function own.lower_quiet_until(scope, at)
    if at < scope.quiet_until then
      scope.quiet_until = at
      call('HSET', scope.base .. ':state', 'calm', at)
    end
  end

  function own.put(scope, row, index, at)
    if at > 0 then
      call('ZADD', scope.base .. ':' .. index, at, row.queue)
    else
      call('ZREM', scope.base .. ':' .. index, row.queue)
    end
    row[index .. '_at'] = at
  end

  -- Return row and score of the first correct entry of `held` or `aged` up to `till`, or nil. Corrects wrong entries.
  function own.first_of(scope, index, closed, till)
    local key, from = scope.base .. ':' .. index, 0
    while true do
      local found = call('ZRANGE', key, from, from, 'WITHSCORES')
      local queue, score = found[1], tonumber(found[2])
      if not queue or score > till then return nil end
      local row = queue_of(scope, queue)
      local right = row.free_at
      if index == 'aged' then right = is_free(row) and row.waiting_since or 0 end
      if right ~= score then
        own.put(scope, row, index, right)
        row.is_changed = true
      elseif closed[queue] then
        from = from + 1
      else
        return row, score
      end
    end
  end

  -- Move committed of a queue and revoke its lease.
  function own.move_queue(scope, row, to)
    move_committed(scope, row, to)
    next_epoch(scope, row)
    -- No receipt exists for this epoch.
    row.ended_by, row.revoked_epoch, row.waiting_since = ACKED, row.epoch, NOW
  end

  -- Mark the first message as exhausted, so that clients can no longer settle it. Return the message.
  function own.exhaust(scope, row)
    if row.exhausted < 2 then
      own.drop_attempt(scope, row)
      next_epoch(scope, row)
      -- The lease expired: the reason of an earlier delivery does not apply to the last one.
      if row.serves > 0 then row.reason = '' end
      -- No receipt exists for this epoch.
      row.ended_by, row.exhausted, row.is_changed = ACKED, 2, true
    end
    local reason = row.reason ~= '' and row.reason or 'the lease ended without an answer'
    return {scope.client, row.queue, row.committed, row.batch_end, row.epoch, scope.incarnation, row.attempts,
      row.first_at, math.min(row.locked_until, NOW), reason, row.serves > 0}
  end

  -- Free queues whose lease has ended, and collect messages whose last attempt has failed.
  function own.end_leases(scope, closed, exhausted)
    for _, queue in ipairs(call('ZRANGEBYSCORE', scope.base .. ':held', '-inf', NOW)) do
      local row = queue_of(scope, queue)
      if row.free_at <= NOW then row.free_at = 0 end
      own.put(scope, row, 'held', row.free_at)
      row.is_changed = true
    end
    for _, queue in ipairs(call('SMEMBERS', scope.base .. ':exhausted')) do
      local row = queue_of(scope, queue)
      if row.free_at == 0 and row.exhausted > 0 and not closed[queue] then
        if row.attempts < MAX_ATTEMPTS or row.committed < row.min then
          -- max_attempts was raised, or retention has deleted the message.
          row.exhausted, row.attempts, row.is_changed = 0, row.committed >= row.min and row.attempts or 0, true
        elseif HAS_DEAD_LETTERS == 1 then
          exhausted[#exhausted + 1] = own.exhaust(scope, row)
        end
      end
    end
  end

  -- Return whether the first message of a free queue is exhausted because max_attempts was lowered, and mark it so.
  function own.mark_if_exhausted(scope, row, exhausted)
    if row.attempts < MAX_ATTEMPTS or row.committed < row.min then return false end
    row.exhausted, row.is_changed = 1, true
    if HAS_DEAD_LETTERS == 1 then exhausted[#exhausted + 1] = own.exhaust(scope, row) end
    return true
  end

  -- Remember how the newest lease ended, and delete at most 64 old ends; a settlement of those is `gone` from then on.
  -- MIN_REMEMBERED applies to the whole group; the clients of a broadcast group share it.
  function own.remember_end(scope, row)
    local ends, order, name = scope.base .. ':unacked', scope.base .. ':unacked:order', row.queue .. ' ' .. row.epoch
    call('HSET', ends, name, row.ended_by)
    local count, names = call('RPUSH', order, name .. ' ' .. NOW), {}
    if scope.client ~= '' then count = call('HINCRBY', REMEMBERED, 'receipts', 1) end
    if count <= MIN_REMEMBERED then return end
    for _, entry in ipairs(call('LRANGE', order, 0, math.min(count - MIN_REMEMBERED, 64) - 1)) do
      local old, queue, epoch, at = entry:match('^((.*) (%d+)) (%d+)$')
      if tonumber(at) > NOW - REMEMBERED_MS then break end
      names[#names + 1] = old
      local its = queue_of(scope, queue)
      if its then its.forgotten, its.is_changed = math.max(its.forgotten, epoch), true end
    end
    if #names == 0 then return end
    call('LTRIM', order, #names, -1)
    call('HDEL', ends, unpack(names))
    if scope.client ~= '' then call('HINCRBY', REMEMBERED, 'receipts', -#names) end
  end

  return own
end

local function decide_outcome(scope, row, verb, queue, start, epoch, incarnation)
  if incarnation ~= scope.incarnation or epoch <= row.forgotten then return 'gone' end
  local ended_by = row.ended_by
  if epoch < row.epoch then
    ended_by = tonumber(call('HGET', scope.base .. ':unacked', queue .. ' ' .. epoch) or ACKED)
  end
  if ended_by > 0 then return (ended_by == ACKED and 'ack' or 'nack') == verb and 'duplicate' or 'lost' end
  if epoch <= row.revoked_epoch then return 'gone' end
  if epoch ~= row.epoch then return start < row.min and 'gone' or 'lost' end
  if start ~= row.committed then return 'gone' end
  return NOW < row.locked_until and 'applied' or 'late_applied'
end

-- Apply one ack, nack or extend. Return the outcome, the message that it exhausted, and the new end of an extended
-- lease. A refused settlement changes nothing.
local function settle(scopes, settlement)
  local verb, client, queue, start, after, epoch, incarnation, visibility, through, delay, reason = unpack(settlement)
  local scope = scopes(client, queue)
  local row = scope and queue_of(scope, queue)
  if not row then return 'gone' end
  local outcome = decide_outcome(scope, row, verb, queue, start, epoch, incarnation)
  if not is_applied(outcome) then return outcome end
  if verb == 'extend' then
    local till = NOW + visibility
    if till > row.granted_at + MAX_HOLD then return 'too_long' end
    row.locked_until, row.free_at, row.is_changed = till, till + backoff(row.attempts), true
    return outcome, nil, till
  end
  row.ended_by = verb == 'ack' and ACKED or NACKED
  if verb == 'ack' then
    move_committed(scope, row, through and through + 1 or after)
    row.last_consumed_at, scope.is_freed = NOW, true
    return outcome
  end
  local is_dead = row.attempts >= MAX_ATTEMPTS and HAS_DEAD_LETTERS == 1
  local free_at = NOW
  if not is_dead then free_at = NOW + (delay or backoff(row.attempts)) end
  slow_path().unlock(scope, row, free_at > NOW and free_at or 0)
  row.reason = reason or 'nacked'
  wake(scope.client, free_at)
  return outcome, is_dead and slow_path().exhaust(scope, row) or nil
end

-- Return a function that reads each scope of a step once, and the table of scopes that it has read.
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

