-- Message mode, what a usual step does not need: messages that failed or wait for their key, outcomes other than a plain
-- ack, what time does, seeks, and what is forgotten. Part of message_book.lua; made when it is needed, see scope.lua.
local opened
book = function()
  if opened then return opened end
  local B = {open = open_book, close = close_book}
  opened = B

  local function end_of(grant, number)
    return grant.ends and grant.ends[number] or grant.base_until
  end

  -- Twice as many as were granted since: what was kept for long enough shrinks.
  local function forget_grants(scope)
    local ended, gone, epochs = scope.base .. ':ended', 0, {}
    local most = math.min(call('LLEN', ended) - LEAST_REMEMBERED, 2 * math.max(scope.epoch - scope.was_epoch, FORGETTING))
    if most <= 0 then return end
    for _, entry in ipairs(call('LRANGE', ended, 0, most - 1)) do
      local epoch, at = entry:match('^(%d+) (%d+)$')
      if tonumber(at) > NOW - MEMORY then break end
      gone = gone + 1
      local grant = grant_at(scope, tonumber(epoch))
      -- An extend may have opened it again.
      if grant and grant.open == 0 then
        epochs[#epochs + 1] = epoch
        if grant.attempt ~= '' then call('HDEL', scope.base .. ':attempts', grant.attempt) end
        scope.grants[tonumber(epoch)] = false
      end
    end
    if gone > 0 then call('LTRIM', ended, gone, -1) end
    if #epochs > 0 then call('HDEL', scope.base .. ':grants', unpack(epochs)) end
  end

  -- A message of a grant is no longer leased.
  local function shut(scope, grant, number, letter)
    if grant.letters[number] == OPEN then
      grant.open = grant.open - 1
      scope.in_flight = scope.in_flight - 1
      scope.touched[grant.queue] = true
    end
    grant.letters[number] = letter
    grant.is_changed = true
  end

  local function named(queue, offset)
    return queue .. ' ' .. string.format('%d', offset)
  end

  local function failed_at(scope, queue, offset)
    local packed = call('HGET', scope.base .. ':failed', named(queue, offset))
    if not packed then return nil end
    local found = cmsgpack.unpack(packed)
    return {queue = queue, offset = offset, epoch = found[1], delivery = found[2], ready_at = found[3], dying = found[4],
      first_at = found[5], last_at = found[6], reason = found[7], lapsed = found[8] or false}
  end

  local function put_failed(scope, row)
    local name = named(row.queue, row.offset)
    call('HSET', scope.base .. ':failed', name, cmsgpack.pack({row.epoch, row.delivery, row.ready_at or false,
      row.dying or false, row.first_at, row.last_at, row.reason or false, row.lapsed or false}))
    call('ZADD', scope.base .. ':failed:' .. row.queue, row.offset, string.format('%d', row.offset))
    if row.ready_at then
      call('ZADD', scope.base .. ':due', row.ready_at, name)
      scope.calm = math.min(scope.calm, row.ready_at)
    else
      call('ZREM', scope.base .. ':due', name)
    end
    if row.dying then
      call('SADD', scope.base .. ':dying', name)
      scope.calm = 0
    end
  end

  -- A message is not leased and not settled: ready again, dying, or waiting for its key.
  local function fail(scope, row)
    local known = failed_at(scope, row.queue, row.offset)
    if known then
      row.first_at = known.first_at
      row.reason = row.reason or known.reason
    end
    put_failed(scope, row)
  end

  local function unfail(scope, queue, offset)
    local name = named(queue, offset)
    if call('HDEL', scope.base .. ':failed', name) == 1 then
      call('ZREM', scope.base .. ':failed:' .. queue, string.format('%d', offset))
      call('ZREM', scope.base .. ':due', name)
      call('SREM', scope.base .. ':dying', name)
    end
  end

  local function ordered(key, offset)
    return key .. '\1' .. string.format('%016d', offset)
  end

  -- The first unsettled message of a key.
  local function first_of_key(scope, queue, key)
    local found = call('ZRANGEBYLEX', scope.base .. ':order:' .. queue, '[' .. key .. '\1', '[' .. key .. '\2', 'LIMIT', 0, 1)
    return found[1] and tonumber(found[1]:sub(-16))
  end

  -- A message is settled for good: the next of its key may go.
  local function finish(scope, queue, offset)
    unfail(scope, queue, offset)
    scope.touched[queue] = true
    if IS_ORDERED == 0 then return end
    local name = string.format('%d', offset)
    local key = call('HGET', scope.base .. ':keys:' .. queue, name)
    if not key then return end
    call('HDEL', scope.base .. ':keys:' .. queue, name)
    call('ZREM', scope.base .. ':order:' .. queue, ordered(key, offset))
    local behind = first_of_key(scope, queue, key)
    local row = behind and failed_at(scope, queue, behind)
    if row and not row.ready_at and row.delivery == 0 then
      row.ready_at = NOW
      put_failed(scope, row)
      wake('', NOW)
    end
  end

  local function doomed_of(scope, row)
    return {'', row.queue, row.offset, row.offset + 1, row.epoch, scope.incarnation, row.delivery, row.first_at, row.last_at,
      row.reason or false, row.lapsed or false}
  end

  -- A delivery failed: ready again later, or never.
  local function fail_delivery(scope, grant, number, ready_at, at, reason, lapsed)
    local is_dead = grant.delivery >= MAX_ATTEMPTS
    local row = {queue = grant.queue, offset = grant.start + number - 1, epoch = grant.epoch, delivery = grant.delivery,
      ready_at = not is_dead and ready_at, dying = is_dead, first_at = grant.granted_at, last_at = at, reason = reason,
      lapsed = lapsed}
    fail(scope, row)
    scope.touched[grant.queue] = true
    return is_dead and doomed_of(scope, row) or nil
  end

  local function judge(scope, verb, queue, epoch, offset, grant, number)
    local letter = grant.letters[number]
    if letter == ACKED then return verb == 'ack' and 'duplicate' or 'lost' end
    if letter == NACKED then return verb == 'nack' and 'duplicate' or 'lost' end
    local row = queue_of(scope, queue)
    if not row or epoch <= row.swept then return 'gone' end
    if letter == OPEN then return end_of(grant, number) <= NOW and 'late_applied' or 'applied' end
    local failed = failed_at(scope, queue, offset)
    if failed and failed.epoch == epoch and failed.ready_at then return 'late_applied' end
    return offset < row.min and 'gone' or 'lost'
  end

  local function extend(scope, grant, number, visibility, outcome)
    local till = NOW + visibility
    if till > grant.granted_at + LONGEST_HOLD then return 'too_long' end
    if grant.letters[number] ~= OPEN then
      -- It had come back already, and nobody had taken it: leased again.
      grant.letters[number] = OPEN
      grant.open = grant.open + 1
      grant.again = true
      scope.in_flight = scope.in_flight + 1
      local row = failed_at(scope, grant.queue, grant.start + number - 1)
      row.ready_at, row.epoch, row.delivery, row.lapsed = false, grant.epoch, grant.delivery, false
      if row.delivery == 1 then row.first_at = grant.granted_at end
      put_failed(scope, row)
    end
    grant.ends = grant.ends or {}
    grant.ends[number] = till
    grant.is_changed = true
    return outcome, nil, till
  end

  -- One ack, nack or extend of a message; what is refused changes nothing. The outcome; what dies of it; until when it was
  -- extended.
  local function settle(scope, settlement, offset)
    local verb, _, queue, _, _, epoch, incarnation, visibility, _, delay, reason = unpack(settlement)
    local grant = incarnation == scope.incarnation and grant_at(scope, epoch)
    if not grant then return 'gone' end
    local number = offset - grant.start + 1
    local outcome = judge(scope, verb, queue, epoch, offset, grant, number)
    if not is_applied(outcome) then return outcome end
    if verb == 'extend' then return extend(scope, grant, number, visibility, outcome) end
    if verb == 'ack' then
      shut(scope, grant, number, ACKED)
      local row = queue_of(scope, grant.queue)
      row.last_consumed_at, row.is_changed = NOW, true
      -- A first delivery that never came back has no row to remove, and without order nobody waits behind it.
      if grant.again or outcome == 'late_applied' or IS_ORDERED == 1 then finish(scope, grant.queue, offset) end
      return outcome
    end
    local ready_at = NOW + (delay or backoff(grant.delivery))
    shut(scope, grant, number, NACKED)
    local doomed = fail_delivery(scope, grant, number, ready_at, NOW, reason or 'nacked')
    wake('', ready_at)
    return outcome, doomed
  end

  -- Leases that ended are failed deliveries; the backoff counts from their end.
  local function expire_ended(scope)
    local count = 0
    while count < MOST_ENDED do
      local epochs = call('ZRANGEBYSCORE', scope.base .. ':leases', '-inf', NOW, 'LIMIT', 0, 100)
      if #epochs == 0 then return end
      for _, epoch in ipairs(epochs) do
        local grant = grant_at(scope, tonumber(epoch))
        for number, letter in ipairs(grant.letters) do
          local till = letter == OPEN and end_of(grant, number)
          if till and till <= NOW then
            shut(scope, grant, number, ENDED)
            local ready_at = till + backoff(grant.delivery)
            fail_delivery(scope, grant, number, ready_at, till, 'the lease ended without an answer', true)
            count = count + 1
          end
        end
        index_grant(scope, grant)
      end
    end
  end

  -- An ordered range whose gateway died before it could say the keys: as if it had not been granted.
  local function take_back_unplaced(scope)
    if IS_ORDERED == 0 then return end
    for _, queue in ipairs(call('SMEMBERS', scope.base .. ':placing')) do
      local row = queue_of(scope, queue)
      local grant = grant_at(scope, row.placing)
      if grant and math.min(until_of(grant), grant.granted_at + PLACING) <= NOW then
        for number, letter in ipairs(grant.letters) do
          if letter == OPEN then
            shut(scope, grant, number, ENDED)
            unfail(scope, queue, grant.start + number - 1)
          end
        end
        row.cursor, row.placing, row.is_changed = grant.start, 0, true
      end
    end
  end

  -- What time has done. First those whose keys nobody knows: as failed messages they would come again out of turn.
  local function end_leases(scope)
    take_back_unplaced(scope)
    take_stock(scope)
    expire_ended(scope)
    take_stock(scope)
  end

  -- When something may next happen by time alone.
  local function be_calm(scope)
    local lease = call('ZRANGE', scope.base .. ':leases', 0, 0, 'WITHSCORES')
    local ready = call('ZRANGE', scope.base .. ':due', 0, 0, 'WITHSCORES')
    local is_urgent = call('SCARD', scope.base .. ':dying') > 0 or call('SCARD', scope.base .. ':overtaken') > 0
    scope.calm = is_urgent and 0 or math.min(tonumber(lease[2]) or 1e15, tonumber(ready[2]) or 1e15)
  end

  -- Messages that are ready again, in the order of their queues.
  local function due(scope, most)
    local found, from = {}, 0
    while #found < most do
      local names = call('ZRANGEBYSCORE', scope.base .. ':due', '-inf', NOW, 'LIMIT', from, most)
      if #names == 0 then break end
      for _, name in ipairs(names) do
        local queue, offset = name:match('^(.*) (%d+)$')
        if #found < most and not scope.closed[queue] then found[#found + 1] = failed_at(scope, queue, tonumber(offset)) end
      end
      from = from + #names
    end
    table.sort(found, function(one, other)
      if one.queue ~= other.queue then return one.queue < other.queue end
      return one.offset < other.offset
    end)
    return found
  end

  -- Whether a message that is ready again had all its deliveries, because the limit was lowered since it failed: then it
  -- dies, and from here on nobody can settle it.
  local function is_doomed(scope, row)
    if row.delivery < MAX_ATTEMPTS or row.offset < queue_of(scope, row.queue).min then return false end
    row.ready_at, row.dying = false, true
    put_failed(scope, row)
    return true
  end

  -- Nothing can be granted now; but of what is ready again that dies which must.
  local function doom_due(scope, most)
    for _, row in ipairs(due(scope, most)) do is_doomed(scope, row) end
  end

  -- Queues with messages that nobody had yet, the least recently served first, until one is enough: the first for which
  -- it is so. No more than MOST_RANGES are looked at.
  local function first_fresh(scope, is_enough)
    local seen, from = 0, 0
    local page = 4
    repeat
      local queues = call('ZRANGE', scope.base .. ':fresh', from, from + page - 1)
      for _, queue in ipairs(queues) do
        if not scope.closed[queue] then
          seen = seen + 1
          local row = queue_of(scope, queue)
          if is_enough(row) then return row end
          if seen == MOST_RANGES then return nil end
        end
      end
      from, page = from + page, MOST_RANGES
    until #queues == 0
  end

  local function is_any() return true end

  -- What retention took of messages that failed, or wait for their key: settled, their places in `lost`. What is leased is
  -- left to its receipt. No more than MOST_OVERTAKEN: nobody else is served meanwhile.
  local function expire(scope, lost)
    local queues = call('SMEMBERS', scope.base .. ':overtaken')
    table.sort(queues)
    for _, queue in ipairs(queues) do
      local row = queue_of(scope, queue)
      local offsets = scope.closed[queue] and {}
        or call('ZRANGEBYSCORE', scope.base .. ':failed:' .. queue, '-inf', '(' .. string.format('%d', row.min))
      for _, offset in ipairs(offsets) do
        if #lost == MOST_OVERTAKEN then break end
        local failed = failed_at(scope, queue, tonumber(offset))
        if failed.ready_at or failed.dying or failed.delivery == 0 then
          finish(scope, queue, failed.offset)
          row.expired, row.is_changed = row.expired + 1, true
          lost[#lost + 1] = {queue, failed.offset, failed.offset + 1}
        end
      end
    end
    if #lost > 0 then take_stock(scope) end
  end

  -- Messages that must die, as far as they can be read for it and retention was not quicker.
  local function dying(scope)
    local found = {}
    for _, name in ipairs(call('SMEMBERS', scope.base .. ':dying')) do
      local queue, offset = name:match('^(.*) (%d+)$')
      local row = failed_at(scope, queue, tonumber(offset))
      if row.offset >= queue_of(scope, queue).min and not scope.closed[queue] then
        found[#found + 1] = doomed_of(scope, row)
      end
    end
    return found
  end

  function B.front_of(row) return row.cursor end
  function B.rising() end

  function B.new_row(queue, head, start)
    local _, min, max, boot = unpack(head)
    return {queue = queue, is_changed = true, was_placing = 0, was_emptied = false, was_overtaken = false,
      fresh_at = false, min = min, max = max, told_at = NOW, boot = boot or 0, committed = start, cursor = start, swept = 0, placing = 0, served_at = NOW, last_consumed_at = 0,
      expired = 0, last_client = ''}
  end

  -- How many messages were settled out of turn: from committed to another place, and behind both.
  function B.done_around(scope, row, to)
    local unsettled = {}
    local failed = call('ZRANGE', scope.base .. ':failed:' .. row.queue, 0, -1)
    for _, offset in ipairs(failed) do unsettled[tonumber(offset)] = true end
    for _, epoch in ipairs(call('ZRANGE', scope.base .. ':open:' .. row.queue, 0, -1)) do
      local grant = grant_at(scope, tonumber(epoch))
      for number, letter in ipairs(grant.letters) do
        if letter == OPEN then unsettled[grant.start + number - 1] = true end
      end
    end
    local before, behind = 0, 0
    for offset = row.committed, row.cursor - 1 do
      if not unsettled[offset] then
        if offset < to then before = before + 1 else behind = behind + 1 end
      end
    end
    return before, behind
  end

  -- Put a queue elsewhere; whatever was leased or waiting there is swept away.
  function B.move_queue(scope, row, to)
    local base, queue = scope.base, row.queue
    for _, epoch in ipairs(call('ZRANGE', base .. ':open:' .. queue, 0, -1)) do
      local grant = grant_at(scope, tonumber(epoch))
      for number, letter in ipairs(grant.letters) do
        if letter == OPEN then shut(scope, grant, number, ENDED) end
      end
      index_grant(scope, grant)
    end
    for _, offset in ipairs(call('ZRANGE', base .. ':failed:' .. queue, 0, -1)) do unfail(scope, queue, tonumber(offset)) end
    call('DEL', base .. ':order:' .. queue, base .. ':keys:' .. queue)
    scope.touched[queue] = nil
    row.committed, row.cursor, row.swept, row.placing, row.served_at = to, to, scope.epoch, 0, NOW
    row.is_changed = true
  end

  B.failed_at, B.put_failed, B.fail, B.finish = failed_at, put_failed, fail, finish
  B.ordered, B.first_of_key, B.shut = ordered, first_of_key, shut
  B.judge, B.settle, B.end_leases, B.be_calm = judge, settle, end_leases, be_calm
  B.is_doomed, B.doom_due, B.expire = is_doomed, doom_due, expire
  B.due, B.dying, B.first_fresh, B.is_any, B.forget_grants = due, dying, first_fresh, is_any, forget_grants
  return B
end
