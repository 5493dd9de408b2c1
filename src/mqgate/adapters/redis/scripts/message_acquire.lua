-- Apply the carried settlements, then lease messages: first those that are ready again, then new ones, queues in turn.
-- Consecutive messages of a queue with the same number of deliveries are one grant. A repeated attempt gets the same
-- grants while all of their messages are unsettled. A repeated request whose reply may be lost (IS_REPEAT) gets the
-- same grants.
--
-- Runs after request, message_row, message_fast_path, scope, message_state and message_slow_path, and uses their locals
-- (see __init__.py).
--
-- ARGV[5] and the reply are those of queue_acquire.lua, with two differences: equal outcomes are returned as one, and
-- an eleventh member is true if messages must be settled before more can be granted (is_span_full).
local _, LIMIT, VISIBILITY, POLLED_BY, NONCE, HAS_OTHER_WAITERS, INCARNATION, WAIT, ATTEMPT, SETTLEMENTS, BOUNDS,
  CLOSED, ADDRESS, FINGERPRINT = unpack(REQUEST)
local scope = open_state('', set_of(CLOSED))
-- The state was created again: the gateway must report all bounds again.
if not scope or (INCARNATION and INCARNATION ~= scope.incarnation) then return false end
local grants, lost, exhausted, state = {}, {}, {}, 'ok'
local granted = 0

local function add(queue, start, count, delivery, again, lease_expired)
  scope.epoch = scope.epoch + 1
  scope.in_flight = scope.in_flight + count
  granted = granted + count
  local states = {}
  for number = 1, count do states[number] = OPEN end
  local grant = {epoch = scope.epoch, queue = queue, start = start, states = states, delivery = delivery,
    granted_at = NOW, base_until = NOW + VISIBILITY, client = POLLED_BY, serves = 1, returned = 0, again = again,
    attempt = ATTEMPT or '', fingerprint = ATTEMPT and FINGERPRINT or '', ends = false, nonce = NONCE,
    lease_expired = lease_expired and count or 0, open = count, was_open = 0, is_changed = true}
  scope.grants[scope.epoch] = grant
  grants[#grants + 1] = {queue, start, start + count, scope.epoch, delivery, NOW, NOW + VISIBILITY, 1,
    grant.lease_expired}
  return grant
end

-- Functions that the common receive does not need.
local function acquire_slow_path()
  local own, mode = {}, slow_path()
  local decide_outcome, due, first_fresh = mode.decide_outcome, mode.due, mode.first_fresh

  function own.repeated()
    local found = {}
    for _, epoch in ipairs(call('ZRANGE', scope.base .. ':leases', 0, -1)) do
      local grant = grant_at(scope, tonumber(epoch))
      if grant.nonce == NONCE then found[#found + 1] = grant end
    end
    return found
  end

  -- Return the grants of the attempt that have open messages, or nil if a message of them was settled or has expired.
  local function attempt_grants()
    local packed = ATTEMPT and call('HGET', scope.base .. ':attempts', ATTEMPT)
    local found = {}
    for _, epoch in ipairs(packed and cmsgpack.unpack(packed) or {}) do
      local grant = grant_at(scope, epoch)
      local has_any = false
      for _, message_state in ipairs(grant and grant.states or {}) do
        if message_state ~= OPEN and message_state ~= NOT_GIVEN then return nil end
        has_any = has_any or message_state == OPEN
      end
      if has_any then found[#found + 1] = grant end
    end
    return found
  end

  local function settles(settlement, grant)
    local verb, _, queue, _, _, epoch, incarnation = unpack(settlement)
    if verb == 'extend' or epoch ~= grant.epoch or incarnation ~= scope.incarnation then return false end
    for _, offset in ipairs(settlement[12]) do
      local outcome = decide_outcome(scope, verb, queue, epoch, offset, grant, offset - grant.start + 1)
      if is_applied(outcome) then return true end
    end
    return false
  end

  -- Return whether the attempt is repeated with other parameters. It is then refused, unless this request settles it.
  function own.is_mismatch()
    local differs = false
    for _, grant in ipairs(attempt_grants() or {}) do
      local row = queue_of(scope, grant.queue)
      -- The lease has expired, or the pull was not reported in time and this step releases the grant.
      local is_unreported = row and row.placing == grant.epoch and grant.granted_at + PULL_REPORT_TIMEOUT <= NOW
      if is_unreported or until_of(grant) <= NOW then return false end
      differs = differs or grant.fingerprint ~= FINGERPRINT
      for _, settlement in ipairs(SETTLEMENTS or {}) do
        if settles(settlement, grant) then return false end
      end
    end
    return differs
  end

  -- Serve the grants of the attempt again, except those of closed queues.
  function own.replay()
    local grants, found = attempt_grants(), {}
    if not grants then
      -- The attempt is assigned to the grants that follow.
      call('HDEL', scope.base .. ':attempts', ATTEMPT)
      return {}
    end
    for _, grant in ipairs(grants) do
      if not scope.closed[grant.queue] then
        grant.serves = grant.serves + 1
        grant.is_changed = true
        found[#found + 1] = grant
      end
    end
    return found
  end

  function own.redeliver(limit)
    local run, runs = nil, {}
    for _, row in ipairs(due(scope, limit)) do
      if row.offset >= queue_of(scope, row.queue).min and not mode.mark_if_exhausted(scope, row) then
        local last = run and run[#run]
        local is_next = last and last.queue == row.queue and last.offset + 1 == row.offset
        if is_next and last.delivery == row.delivery and last.lease_expired == row.lease_expired then
          run[#run + 1] = row
        else
          run = {row}
          runs[#runs + 1] = run
        end
      end
    end
    for _, rows in ipairs(runs) do
      local first = rows[1]
      local grant = add(first.queue, first.offset, #rows, first.delivery + 1, true, first.lease_expired)
      for _, row in ipairs(rows) do
        row.ready_at, row.epoch, row.delivery, row.lease_expired = false, grant.epoch, grant.delivery, false
        if row.delivery == 1 then row.first_at = NOW end
        mode.put_failed(scope, row)
      end
    end
  end

  -- Report queues that retention has emptied: no later grant would report their lost messages.
  function own.report_emptied()
    local emptied = call('SMEMBERS', scope.base .. ':emptied')
    table.sort(emptied)
    for _, queue in ipairs(emptied) do
      local row = queue_of(scope, queue)
      if row.placing == 0 and not scope.closed[queue] then
        lost[#lost + 1] = {queue, row.cursor, row.min}
        if row.committed >= row.cursor then row.committed = row.min end
        row.expired, row.cursor, row.is_changed = row.expired + row.min - row.cursor, row.min, true
      end
    end
  end

  -- Return whether any message is unsettled or not granted yet.
  function own.has_backlog()
    return call('ZCARD', scope.base .. ':fresh') > 0 or scope.in_flight > 0 or call('HLEN', scope.base .. ':failed') > 0
  end

  -- Assign the new grants to the attempt, and remove those of closed queues from it.
  function own.keep_attempt()
    local epochs = {}
    local packed = call('HGET', scope.base .. ':attempts', ATTEMPT)
    for _, epoch in ipairs(packed and cmsgpack.unpack(packed) or {}) do
      local grant = grant_at(scope, epoch)
      if grant and not scope.closed[grant.queue] then epochs[#epochs + 1] = epoch end
    end
    for _, grant in ipairs(grants) do epochs[#epochs + 1] = grant[4] end
    call('HSET', scope.base .. ':attempts', ATTEMPT, cmsgpack.pack(epochs))
  end

  -- Return when a message next becomes ready. While rate limited or at max_in_flight, ready messages do not count.
  function own.next_at()
    if state == 'rate_limited' then return scope_slow_path().next_token_at() end
    local earliest
    local function check_index(index, queue_in)
      local from = 0
      repeat
        local found = call('ZRANGE', scope.base .. index, from, from + 7, 'WITHSCORES')
        for i = 1, #found, 2 do
          if state == 'in_flight_cap' or not scope.closed[queue_in(found[i])] then
            earliest = math.min(earliest or math.huge, tonumber(found[i + 1]))
            return
          end
        end
        from = from + 8
      until #found == 0
    end
    check_index(':leases', function(epoch) return next(scope.closed) and grant_at(scope, tonumber(epoch)).queue end)
    if state ~= 'in_flight_cap' then check_index(':due', function(name) return name:match('^(.*) %d+$') end) end
    return earliest and math.max(earliest, NOW)
  end

  return own
end

if ATTEMPT and acquire_slow_path().is_mismatch() then return 0 end
local settled = SETTLEMENTS and settle_all(scope, SETTLEMENTS) or {}
-- Always apply the bounds: a gateway reports them only once.
local rewound, unknown_queues = 0, {}
if BOUNDS then rewound, unknown_queues = scope_slow_path().update_bounds(scope, BOUNDS, scope.closed) end
if ADDRESS then scope_slow_path().record_poll(POLLED_BY, ADDRESS) end
local next_time, has_more, is_span_full = false, false, false
local is_quiet = true
if #unknown_queues == 0 then
  update_indexes(scope)
  is_quiet = NOW < scope.quiet_until and IS_ORDERED == 0
  if not is_quiet then slow_path().end_leases(scope) end
  local same = IS_REPEAT and acquire_slow_path().repeated() or {}
  if #same == 0 and ATTEMPT then same = acquire_slow_path().replay() end
  local room = math.min(LIMIT, MAX_IN_FLIGHT - scope.in_flight)
  if #same > 0 then
    for i, grant in ipairs(same) do grants[i] = grant_of(grant) end
  elseif IS_PAUSED == 1 or room <= 0 then
    state = IS_PAUSED == 1 and 'paused' or 'in_flight_cap'
    if not is_quiet then slow_path().mark_due_exhausted(scope, LIMIT) end
  else
    if not is_quiet then slow_path().expire(scope, lost) end
    local allowed = RATE > 0 and scope_slow_path().take_tokens(room) or room
    if not is_quiet and allowed == 0 then slow_path().mark_due_exhausted(scope, LIMIT) end
    if not is_quiet and allowed > 0 then acquire_slow_path().redeliver(allowed) end
    -- New messages of the least recently served queues. The index changes only when the step is written, so paging
    -- through it is safe.
    local seen, from, page, queues = 0, 0, 2, nil
    repeat
      if granted == allowed then break end
      queues = call('ZRANGE', scope.base .. ':fresh', from, from + page - 1)
      for _, queue in ipairs(queues) do
        if granted < allowed and seen < MAX_RANGES and not scope.closed[queue] then
          seen = seen + 1
          local row = queue_of(scope, queue)
          local skipped = math.max(row.min - row.cursor, 0)
          local cursor = row.cursor + skipped
          local committed = row.committed < row.cursor and row.committed or cursor
          local count = math.min(allowed - granted, row.max - cursor, committed + MAX_SPAN - cursor)
          if row.placing == 0 and count > 0 then
            local grant = add(queue, cursor, count, 1, false)
            row.cursor, row.committed, row.placing = cursor + count, committed, IS_ORDERED == 1 and grant.epoch or 0
            row.served_at, row.last_client, row.expired, row.is_changed = NOW, POLLED_BY, row.expired + skipped, true
            if skipped > 0 then lost[#lost + 1] = {queue, cursor - skipped, cursor} end
          end
        end
      end
      from, page = from + page, MAX_RANGES
    until seen == MAX_RANGES or #queues == 0
    if RATE > 0 then scope_slow_path().refund(allowed - granted) end
    if granted == 0 and allowed > 0 then acquire_slow_path().report_emptied() end
    if granted == 0 and acquire_slow_path().has_backlog() then
      state = 'busy'
      if allowed == 0 and (slow_path().first_fresh(scope, slow_path().is_any) or #slow_path().due(scope, 1) > 0) then
        state = 'rate_limited'
      end
    end
    if ATTEMPT and granted > 0 then acquire_slow_path().keep_attempt() end
  end
  if not is_quiet then
    update_indexes(scope)
    slow_path().update_quiet_until(scope)
  end
  close_state(scope)
  if #same == 0 and state ~= 'paused' then
    if granted > 0 and HAS_OTHER_WAITERS and not CLOSED and NOW < scope.quiet_until then
      -- Never too late for other receives; the one that tries then gets an exact time.
      next_time = scope.quiet_until
    elseif granted == 0 or HAS_OTHER_WAITERS then
      next_time = acquire_slow_path().next_at()
    end
    if state == 'busy' then
      is_span_full = slow_path().first_fresh(scope, function(row) return row.placing == 0 end) ~= nil
    end
    if granted > 0 and HAS_OTHER_WAITERS then
      has_more = slow_path().first_fresh(scope, slow_path().is_any) ~= nil or #slow_path().due(scope, 1) > 0
    end
  end
  if WAIT and #grants == 0 then scope_slow_path().park(WAIT) end
else
  close_state(scope)
end
if NOW >= scope.quiet_until then exhausted = slow_path().exhausted_messages(scope) end
local reply = {scope.incarnation, settled, grants, state, next_time or 0, has_more}
if rewound > 0 or #lost > 0 or #exhausted > 0 or #unknown_queues > 0 or is_span_full then
  reply[7], reply[8], reply[9], reply[10], reply[11] = rewound, lost, exhausted, unknown_queues, is_span_full
end
return cmsgpack.pack(reply)
