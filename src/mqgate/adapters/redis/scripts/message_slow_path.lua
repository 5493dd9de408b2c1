-- Message mode, functions that a common step does not need: failed and waiting messages, settlements other than a plain
-- ack, expiry, seeks, deletion of old grants. Created on demand, see scope.lua.
local slow_path_functions
slow_path = function()
  if slow_path_functions then return slow_path_functions end
  local own = {open = open_state, close = close_state}
  slow_path_functions = own

  local function end_of(grant, number)
    return grant.ends and grant.ends[number] or grant.base_until
  end

  -- Delete old grants: at most twice as many as were granted since, so that the list shrinks.
  local function forget_grants(scope)
    local ended, gone, epochs = scope.base .. ':ended', 0, {}
    local granted = math.max(scope.epoch - scope.was_epoch, FORGET_INTERVAL)
    local limit = math.min(call('LLEN', ended) - MIN_REMEMBERED, 2 * granted)
    if limit <= 0 then return end
    for _, entry in ipairs(call('LRANGE', ended, 0, limit - 1)) do
      local epoch, at = entry:match('^(%d+) (%d+)$')
      if tonumber(at) > NOW - REMEMBERED_MS then break end
      gone = gone + 1
      local grant = grant_at(scope, tonumber(epoch))
      -- An extend may have opened the grant again.
      if grant and grant.open == 0 then
        epochs[#epochs + 1] = epoch
        if grant.attempt ~= '' then call('HDEL', scope.base .. ':attempts', grant.attempt) end
        scope.grants[tonumber(epoch)] = false
      end
    end
    if gone > 0 then call('LTRIM', ended, gone, -1) end
    if #epochs > 0 then call('HDEL', scope.base .. ':grants', unpack(epochs)) end
  end

  -- End the lease of one message.
  local function close_message(scope, grant, number, message_state)
    if grant.states[number] == OPEN then
      grant.open = grant.open - 1
      scope.in_flight = scope.in_flight - 1
      scope.touched[grant.queue] = true
    end
    grant.states[number] = message_state
    grant.is_changed = true
  end

  local function failed_name(queue, offset)
    return queue .. ' ' .. string.format('%d', offset)
  end

  local function failed_at(scope, queue, offset)
    local packed = call('HGET', scope.base .. ':failed', failed_name(queue, offset))
    if not packed then return nil end
    local found = cmsgpack.unpack(packed)
    return {queue = queue, offset = offset, epoch = found[1], delivery = found[2], ready_at = found[3],
      is_exhausted = found[4], first_at = found[5], last_at = found[6], reason = found[7],
      lease_expired = found[8] or false}
  end

  local function put_failed(scope, row)
    local name = failed_name(row.queue, row.offset)
    call('HSET', scope.base .. ':failed', name, cmsgpack.pack({row.epoch, row.delivery, row.ready_at or false,
      row.is_exhausted or false, row.first_at, row.last_at, row.reason or false, row.lease_expired or false}))
    call('ZADD', scope.base .. ':failed:' .. row.queue, row.offset, string.format('%d', row.offset))
    if row.ready_at then
      call('ZADD', scope.base .. ':due', row.ready_at, name)
      scope.quiet_until = math.min(scope.quiet_until, row.ready_at)
    else
      call('ZREM', scope.base .. ':due', name)
    end
    if row.is_exhausted then
      call('SADD', scope.base .. ':dying', name)
      scope.quiet_until = 0
    end
  end

  -- Store a message that is neither leased nor settled: ready again, exhausted, or waiting for its key.
  local function fail(scope, row)
    local known = failed_at(scope, row.queue, row.offset)
    if known then
      row.first_at = known.first_at
      row.reason = row.reason or known.reason
    end
    put_failed(scope, row)
  end

  local function remove_failed(scope, queue, offset)
    local name = failed_name(queue, offset)
    if call('HDEL', scope.base .. ':failed', name) == 1 then
      call('ZREM', scope.base .. ':failed:' .. queue, string.format('%d', offset))
      call('ZREM', scope.base .. ':due', name)
      call('SREM', scope.base .. ':dying', name)
    end
  end

  local function order_member(key, offset)
    return key .. '\1' .. string.format('%016d', offset)
  end

  -- Return the offset of the first unsettled message of a key.
  local function first_of_key(scope, queue, key)
    local found = call('ZRANGEBYLEX', scope.base .. ':order:' .. queue, '[' .. key .. '\1', '[' .. key .. '\2', 'LIMIT',
      0, 1)
    return found[1] and tonumber(found[1]:sub(-16))
  end

  -- Settle a message finally. The next message of its key becomes ready.
  local function settle_finally(scope, queue, offset)
    remove_failed(scope, queue, offset)
    scope.touched[queue] = true
    if IS_ORDERED == 0 then return end
    local name = string.format('%d', offset)
    local key = call('HGET', scope.base .. ':keys:' .. queue, name)
    if not key then return end
    call('HDEL', scope.base .. ':keys:' .. queue, name)
    call('ZREM', scope.base .. ':order:' .. queue, order_member(key, offset))
    local behind = first_of_key(scope, queue, key)
    local row = behind and failed_at(scope, queue, behind)
    if row and not row.ready_at and row.delivery == 0 then
      row.ready_at = NOW
      put_failed(scope, row)
      wake('', NOW)
    end
  end

  local function exhausted_of(scope, row)
    return {'', row.queue, row.offset, row.offset + 1, row.epoch, scope.incarnation, row.delivery, row.first_at,
      row.last_at, row.reason or false, row.lease_expired or false}
  end

  -- Record a failed delivery. Return the exhausted message if it was the last one.
  local function fail_delivery(scope, grant, number, ready_at, at, reason, lease_expired)
    local is_dead = grant.delivery >= MAX_ATTEMPTS
    local row = {queue = grant.queue, offset = grant.start + number - 1, epoch = grant.epoch, delivery = grant.delivery,
      ready_at = not is_dead and ready_at, is_exhausted = is_dead, first_at = grant.granted_at, last_at = at,
      reason = reason, lease_expired = lease_expired}
    fail(scope, row)
    scope.touched[grant.queue] = true
    return is_dead and exhausted_of(scope, row) or nil
  end

  local function decide_outcome(scope, verb, queue, epoch, offset, grant, number)
    local message_state = grant.states[number]
    if message_state == ACKED then return verb == 'ack' and 'duplicate' or 'lost' end
    if message_state == NACKED then return verb == 'nack' and 'duplicate' or 'lost' end
    local row = queue_of(scope, queue)
    if not row or epoch <= row.revoked_epoch then return 'gone' end
    if message_state == OPEN then return end_of(grant, number) <= NOW and 'late_applied' or 'applied' end
    local failed = failed_at(scope, queue, offset)
    if failed and failed.epoch == epoch and failed.ready_at then return 'late_applied' end
    return offset < row.min and 'gone' or 'lost'
  end

  local function extend(scope, grant, number, visibility, outcome)
    local till = NOW + visibility
    if till > grant.granted_at + MAX_HOLD then return 'too_long' end
    if grant.states[number] ~= OPEN then
      -- The lease had ended and the message was not granted again: lease it again.
      grant.states[number] = OPEN
      grant.open = grant.open + 1
      grant.again = true
      scope.in_flight = scope.in_flight + 1
      local row = failed_at(scope, grant.queue, grant.start + number - 1)
      row.ready_at, row.epoch, row.delivery, row.lease_expired = false, grant.epoch, grant.delivery, false
      if row.delivery == 1 then row.first_at = grant.granted_at end
      put_failed(scope, row)
    end
    grant.ends = grant.ends or {}
    grant.ends[number] = till
    grant.is_changed = true
    return outcome, nil, till
  end

  -- Apply one ack, nack or extend to a message. Return the outcome, the message that it exhausted, and the new end of
  -- an extended lease. A refused settlement changes nothing.
  local function settle(scope, settlement, offset)
    local verb, _, queue, _, _, epoch, incarnation, visibility, _, delay, reason = unpack(settlement)
    local grant = incarnation == scope.incarnation and grant_at(scope, epoch)
    if not grant then return 'gone' end
    local number = offset - grant.start + 1
    local outcome = decide_outcome(scope, verb, queue, epoch, offset, grant, number)
    if not is_applied(outcome) then return outcome end
    if verb == 'extend' then return extend(scope, grant, number, visibility, outcome) end
    if verb == 'ack' then
      close_message(scope, grant, number, ACKED)
      local row = queue_of(scope, grant.queue)
      row.last_consumed_at, row.is_changed = NOW, true
      -- A first delivery that never failed has no failed row, and in an unordered group no message waits for it.
      if grant.again or outcome == 'late_applied' or IS_ORDERED == 1 then settle_finally(scope, grant.queue, offset) end
      return outcome
    end
    local ready_at = NOW + (delay or backoff(grant.delivery))
    close_message(scope, grant, number, NACKED)
    local exhausted = fail_delivery(scope, grant, number, ready_at, NOW, reason or 'nacked')
    wake('', ready_at)
    return outcome, exhausted
  end

  -- Record expired leases as failed deliveries. The backoff starts at the end of the lease.
  local function expire_ended(scope)
    local count = 0
    while count < MAX_ENDED do
      local epochs = call('ZRANGEBYSCORE', scope.base .. ':leases', '-inf', NOW, 'LIMIT', 0, 100)
      if #epochs == 0 then return end
      for _, epoch in ipairs(epochs) do
        local grant = grant_at(scope, tonumber(epoch))
        for number, message_state in ipairs(grant.states) do
          local till = message_state == OPEN and end_of(grant, number)
          if till and till <= NOW then
            close_message(scope, grant, number, ENDED)
            local ready_at = till + backoff(grant.delivery)
            fail_delivery(scope, grant, number, ready_at, till, 'the lease ended without an answer', true)
            count = count + 1
          end
        end
        index_grant(scope, grant)
      end
    end
  end

  -- Undo ordered grants whose gateway did not report the pull in time.
  local function undo_unreported(scope)
    if IS_ORDERED == 0 then return end
    for _, queue in ipairs(call('SMEMBERS', scope.base .. ':placing')) do
      local row = queue_of(scope, queue)
      local grant = grant_at(scope, row.placing)
      if grant and math.min(until_of(grant), grant.granted_at + PULL_REPORT_TIMEOUT) <= NOW then
        for number, message_state in ipairs(grant.states) do
          if message_state == OPEN then
            close_message(scope, grant, number, ENDED)
            remove_failed(scope, queue, grant.start + number - 1)
          end
        end
        row.cursor, row.placing, row.is_changed = grant.start, 0, true
      end
    end
  end

  -- End leases that have expired. Unreported grants come first: as failed messages they would be delivered out of
  -- order.
  local function end_leases(scope)
    undo_unreported(scope)
    update_indexes(scope)
    expire_ended(scope)
    update_indexes(scope)
  end

  -- Set quiet_until to the next lease end or due time.
  local function update_quiet_until(scope)
    local lease = call('ZRANGE', scope.base .. ':leases', 0, 0, 'WITHSCORES')
    local ready = call('ZRANGE', scope.base .. ':due', 0, 0, 'WITHSCORES')
    local is_urgent = call('SCARD', scope.base .. ':dying') > 0 or call('SCARD', scope.base .. ':overtaken') > 0
    scope.quiet_until = is_urgent and 0 or math.min(tonumber(lease[2]) or 1e15, tonumber(ready[2]) or 1e15)
  end

  -- Return messages that are ready again, ordered by queue and offset.
  local function due(scope, limit)
    local found, from = {}, 0
    while #found < limit do
      local names = call('ZRANGEBYSCORE', scope.base .. ':due', '-inf', NOW, 'LIMIT', from, limit)
      if #names == 0 then break end
      for _, name in ipairs(names) do
        local queue, offset = name:match('^(.*) (%d+)$')
        if #found < limit and not scope.closed[queue] then
          found[#found + 1] = failed_at(scope, queue, tonumber(offset))
        end
      end
      from = from + #names
    end
    table.sort(found, function(one, other)
      if one.queue ~= other.queue then return one.queue < other.queue end
      return one.offset < other.offset
    end)
    return found
  end

  -- Return whether a message that is ready again is exhausted because max_attempts was lowered, and mark it so. It can
  -- no longer be settled by a client.
  local function mark_if_exhausted(scope, row)
    if row.delivery < MAX_ATTEMPTS or row.offset < queue_of(scope, row.queue).min then return false end
    row.ready_at, row.is_exhausted = false, true
    put_failed(scope, row)
    return true
  end

  -- Mark exhausted messages although none can be granted now.
  local function mark_due_exhausted(scope, limit)
    for _, row in ipairs(due(scope, limit)) do mark_if_exhausted(scope, row) end
  end

  -- Return the first queue with new messages for which `is_enough`, least recently served first. Checks at most
  -- MAX_RANGES queues.
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
          if seen == MAX_RANGES then return nil end
        end
      end
      from, page = from + page, MAX_RANGES
    until #queues == 0
  end

  local function is_any() return true end

  -- Settle failed and waiting messages that retention has deleted, and add their offsets to `lost`. Leased messages are
  -- left to their receipts. Handles at most MAX_EXPIRED messages, because the server is blocked meanwhile.
  local function expire(scope, lost)
    local queues = call('SMEMBERS', scope.base .. ':overtaken')
    table.sort(queues)
    for _, queue in ipairs(queues) do
      local row = queue_of(scope, queue)
      local offsets = scope.closed[queue] and {}
        or call('ZRANGEBYSCORE', scope.base .. ':failed:' .. queue, '-inf', '(' .. string.format('%d', row.min))
      for _, offset in ipairs(offsets) do
        if #lost == MAX_EXPIRED then break end
        local failed = failed_at(scope, queue, tonumber(offset))
        if failed.ready_at or failed.is_exhausted or failed.delivery == 0 then
          settle_finally(scope, queue, failed.offset)
          row.expired, row.is_changed = row.expired + 1, true
          lost[#lost + 1] = {queue, failed.offset, failed.offset + 1}
        end
      end
    end
    if #lost > 0 then update_indexes(scope) end
  end

  -- Return the exhausted messages that are still stored and not in a closed queue.
  local function exhausted_messages(scope)
    local found = {}
    for _, name in ipairs(call('SMEMBERS', scope.base .. ':dying')) do
      local queue, offset = name:match('^(.*) (%d+)$')
      local row = failed_at(scope, queue, tonumber(offset))
      if row.offset >= queue_of(scope, queue).min and not scope.closed[queue] then
        found[#found + 1] = exhausted_of(scope, row)
      end
    end
    return found
  end

  function own.position_of(row) return row.cursor end
  function own.note_first_append() end

  function own.new_row(queue, queue_bounds, start)
    local _, min, max, boot = unpack(queue_bounds)
    return {queue = queue, is_changed = true, was_placing = 0, was_emptied = false, had_expired = false,
      fresh_at = false, min = min, max = max, bounds_reported_at = NOW, boot = boot or 0, committed = start,
      cursor = start, revoked_epoch = 0, placing = 0, served_at = NOW, last_consumed_at = 0, expired = 0,
        last_client = ''}
  end

  -- Return how many messages from committed on are settled: before the offset `to`, and from there on.
  function own.count_settled_around(scope, row, to)
    local unsettled = {}
    local failed = call('ZRANGE', scope.base .. ':failed:' .. row.queue, 0, -1)
    for _, offset in ipairs(failed) do unsettled[tonumber(offset)] = true end
    for _, epoch in ipairs(call('ZRANGE', scope.base .. ':open:' .. row.queue, 0, -1)) do
      local grant = grant_at(scope, tonumber(epoch))
      for number, message_state in ipairs(grant.states) do
        if message_state == OPEN then unsettled[grant.start + number - 1] = true end
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

  -- Move committed and cursor of a queue. Revoke its leases and delete its failed messages.
  function own.move_queue(scope, row, to)
    local base, queue = scope.base, row.queue
    for _, epoch in ipairs(call('ZRANGE', base .. ':open:' .. queue, 0, -1)) do
      local grant = grant_at(scope, tonumber(epoch))
      for number, message_state in ipairs(grant.states) do
        if message_state == OPEN then close_message(scope, grant, number, ENDED) end
      end
      index_grant(scope, grant)
    end
    for _, offset in ipairs(call('ZRANGE', base .. ':failed:' .. queue, 0, -1)) do
      remove_failed(scope, queue, tonumber(offset))
    end
    call('DEL', base .. ':order:' .. queue, base .. ':keys:' .. queue)
    scope.touched[queue] = nil
    row.committed, row.cursor, row.revoked_epoch, row.placing, row.served_at = to, to, scope.epoch, 0, NOW
    row.is_changed = true
  end

  own.failed_at, own.put_failed, own.fail, own.settle_finally = failed_at, put_failed, fail, settle_finally
  own.order_member, own.first_of_key, own.close_message = order_member, first_of_key, close_message
  own.decide_outcome, own.settle, own.end_leases, own.update_quiet_until = decide_outcome, settle, end_leases,
    update_quiet_until
  own.mark_if_exhausted, own.mark_due_exhausted, own.expire = mark_if_exhausted, mark_due_exhausted, expire
  own.due, own.exhausted_messages, own.first_fresh, own.is_any, own.forget_grants = due, exhausted_messages, first_fresh,
    is_any, forget_grants
  return own
end
