-- Apply the carried settlements, then choose and lease one queue.
--
-- Candidates are free queues with a backlog. Queues that were not served for 30 s come first, oldest first; then the
-- largest backlog, and of equal ones the least recently consumed. A repeated attempt gets the same lease while that is
-- unsettled and has not expired. A repeated request whose reply may be lost (IS_REPEAT) gets the same grant.
--
-- Runs after request, queue_row, queue_fast_path, scope and queue_state, and uses their locals (see __init__.py).
--
-- ARGV[5] {client, limit, visibility, polling client, nonce, has_other_waiters, last incarnation that the gateway has
--         seen, wait, attempt, settlements, bounds, closed, address if the poll is to be recorded, fingerprint of the
--         attempt}; from the incarnation on, false means absent.
--         A settlement is {verb, client, queue, start, next, epoch, incarnation, visibility, through, delay, reason,
--         offsets}; bounds are {{queue, min, max, boot, floor, last_append_ms}, ..}.
-- Returns nil: no state | 0: the attempt has another fingerprint | {incarnation, settled, grants, state, next_at,
--         has_more, rewound, lost, exhausted, unknown_queues}, the last four only if one of them is not empty.
--         A grant is {queue, start, next, epoch, delivery, granted_at, until, serve, lease_expired}.
local CLIENT, LIMIT, VISIBILITY, POLLED_BY, NONCE, HAS_OTHER_WAITERS, INCARNATION, WAIT, ATTEMPT, SETTLEMENTS, BOUNDS,
  CLOSED, ADDRESS, FINGERPRINT = unpack(REQUEST)
local scopes, known = scopes_of()
local scope = scopes(CLIENT, SETTLEMENTS and SETTLEMENTS[1][3])
-- The state was created again: the gateway must report all bounds again.
if not scope or (INCARNATION and INCARNATION ~= scope.incarnation) then return false end
local closed = set_of(CLOSED)
local settled, lost, exhausted, state = {}, {}, {}, 'ok'

-- Functions that the common receive does not need.
local function acquire_slow_path()
  local own, mode = {}, slow_path()

  -- Return the row that the attempt has leased, or nil if the lease was settled or has expired.
  local function attempt_lease()
    local queue = ATTEMPT and call('HGET', scope.base .. ':attempts', ATTEMPT)
    local row = queue and queue_of(scope, queue)
    return row and row.attempt == ATTEMPT and NOW < row.locked_until and row or nil
  end

  function own.replay()
    if IS_REPEAT then
      for _, queue in ipairs(call('ZRANGE', scope.base .. ':held', 0, -1)) do
        local row = queue_of(scope, queue)
        if row.free_at > 0 and row.nonce == NONCE and NOW < row.locked_until then return row end
      end
    end
    local row = attempt_lease()
    if not row or closed[row.queue] then return nil end
    row.serves, row.is_changed = row.serves + 1, true
    return row
  end

  -- Return whether the attempt is repeated with other parameters. It is then refused, unless this request settles it.
  function own.is_mismatch()
    local row = attempt_lease()
    if not row or row.fingerprint == FINGERPRINT then return false end
    for _, settlement in ipairs(SETTLEMENTS or {}) do
      local verb, client, queue, start, _, epoch, incarnation = unpack(settlement)
      local is_here = client == scope.client and queue == row.queue and verb ~= 'extend'
      if is_here and is_applied(decide_outcome(scope, row, verb, queue, start, epoch,
        incarnation)) then return false end
    end
    return true
  end

  -- Assign the attempt to this queue. Its leases of closed queues are left to expire.
  function own.keep_attempt(row)
    row.attempt, row.fingerprint = ATTEMPT, FINGERPRINT
    call('HSET', scope.base .. ':attempts', ATTEMPT, row.queue)
    for queue in pairs(closed) do
      local other = queue ~= row.queue and queue_of(scope, queue)
      if other and other.attempt == ATTEMPT then other.attempt, other.is_changed = '', true end
    end
  end

  function own.end_leases() mode.end_leases(scope, closed, exhausted) end

  -- Return the queue that was not served for the longest time, if that is over the limit; else update quiet_until.
  function own.longest_unserved()
    save(scope)
    local row = mode.first_of(scope, 'aged', closed, NOW - MAX_UNSERVED_MS)
    if not row then
      local _, free_at = mode.first_of(scope, 'held', {}, math.huge)
      local _, since = mode.first_of(scope, 'aged', {}, math.huge)
      local has_exhausted = call('SCARD', scope.base .. ':exhausted') > 0
      scope.quiet_until = has_exhausted and 0 or math.min(free_at or 1e15, (since or 1e15) + MAX_UNSERVED_MS)
      call('HSET', scope.base .. ':state', 'calm', scope.quiet_until)
    end
    return row
  end

  -- Report queues that retention has emptied: no later grant would report their lost messages.
  function own.report_emptied()
    local emptied = call('SMEMBERS', scope.base .. ':emptied')
    table.sort(emptied)
    for _, queue in ipairs(emptied) do
      if not closed[queue] then
        local row = queue_of(scope, queue)
        lost[#lost + 1] = {queue, row.committed, row.min}
        row.expired, row.committed, row.is_changed = row.expired + row.min - row.committed, row.min, true
        row.attempts, row.first_at, row.reason = 0, 0, ''
      end
    end
  end

  -- Return whether there is a backlog that cannot be granted: held, blocked by an exhausted message, or closed.
  function own.is_busy()
    if call('ZCARD', scope.base .. ':free') > 0 then return true end
    local held, blocked = call('ZRANGE', scope.base .. ':held', 0, -1), call('SMEMBERS', scope.base .. ':exhausted')
    for _, queues in ipairs({held, blocked}) do
      for _, queue in ipairs(queues) do
        if backlog_of(queue_of(scope, queue)) > 0 then return true end
      end
    end
    return false
  end

  return own
end

if ATTEMPT and acquire_slow_path().is_mismatch() then return 0 end
for i, settlement in ipairs(SETTLEMENTS or {}) do
  local outcome, dead, till = settle(scopes, settlement)
  settled[i] = settlement_reply(outcome, dead, till)
  if dead and not closed[settlement[3]] then exhausted[#exhausted + 1] = dead end
end
-- Always apply the bounds: a gateway reports them only once.
local rewound, unknown_queues = 0, {}
if BOUNDS then rewound, unknown_queues = scope_slow_path().update_bounds(scope, BOUNDS, closed) end
if ADDRESS then scope_slow_path().record_poll(POLLED_BY, ADDRESS) end
local row, is_more, next_at = nil, false, 0
if #unknown_queues == 0 then
  row = (ATTEMPT or IS_REPEAT) and acquire_slow_path().replay()
  if not row and IS_PAUSED == 1 then
    state = 'paused'
  elseif not row and LIMIT > 0 then
    local is_quiet = NOW < scope.quiet_until
    for _, read in pairs(scope.rows) do
      if read and is_free(read) and read.waiting_since + MAX_UNSERVED_MS <= NOW then is_quiet = false end
    end
    if not is_quiet then acquire_slow_path().end_leases() end
    repeat
      local old = not is_quiet and acquire_slow_path().longest_unserved()
      -- Find the queue with the largest backlog, and whether there is another. Rows that this step has read are
      -- compared by their current values, the others by the index; usually the first two entries suffice.
      local best, score, name, found
      local count, from, page = 0, 0, 2
      repeat
        found = call('ZRANGE', scope.base .. ':free', from, from + page - 1, 'WITHSCORES')
        for i = 1, #found, 2 do
          local queue = found[i]:sub(17)
          if not closed[queue] and not scope.rows[queue] then
            count = count + 1
            if count == 1 then best, score, name = queue, tonumber(found[i + 1]), found[i] end
          end
        end
        from = from + page
        page = #found < 2 * page and 0 or 16
      until count > 1 or page == 0
      for queue, read in pairs(scope.rows) do
        if read and is_free(read) and not closed[queue] then
          local own = -backlog_of(read)
          count = count + 1
          if not best or own < score or (own == score and name_of(read) < name) then
            best, score, name = queue, own, name_of(read)
          end
        end
      end
      is_more = count > 1
      row = old or best and queue_of(scope, best)
    until not row or row.attempts < MAX_ATTEMPTS or not slow_path().mark_if_exhausted(scope, row, exhausted)
    if row then
      -- If retention deleted the first message, attempts start over. The second half of the attempts deliver one
      -- message.
      local expired = math.max(row.min - row.committed, 0)
      local attempts = expired > 0 and 1 or row.attempts + 1
      local committed = row.committed + expired
      local limit = math.min(attempts > math.floor(MAX_ATTEMPTS / 2) and 1 or LIMIT, row.max - committed)
      if RATE > 0 then limit = scope_slow_path().take_tokens(limit) end
      if limit == 0 then
        state, row, is_more = 'rate_limited', nil, false
      else
        if row.attempt ~= '' then slow_path().drop_attempt(scope, row) end
        if expired > 0 then lost[1] = {row.queue, row.committed, committed} end
        row.lease_expired = row.serves > 0 and math.max(row.batch_end - committed, 0) or 0
        next_epoch(scope, row)
        row.committed, row.batch_end, row.attempts = committed, committed + limit, attempts
        row.granted_at, row.locked_until, row.locked_by = NOW, NOW + VISIBILITY, POLLED_BY
        row.free_at, row.serves, row.returned, row.nonce = row.locked_until + backoff(attempts), 1, 0, NONCE
        row.exhausted = attempts >= MAX_ATTEMPTS and 1 or 0
        row.waiting_since, row.expired, row.is_changed = NOW, row.expired + expired, true
        if attempts == 1 then row.first_at = NOW end
        if ATTEMPT then acquire_slow_path().keep_attempt(row) end
      end
    else
      save(scope)
      acquire_slow_path().report_emptied()
      if acquire_slow_path().is_busy() then state = 'busy' end
    end
    if state == 'rate_limited' then
      next_at = scope_slow_path().next_token_at()
    elseif not row or HAS_OTHER_WAITERS then
      save(scope)
      if row and not CLOSED and NOW < scope.quiet_until then
        -- Never too late for other receives; the one that tries then gets an exact time.
        next_at = scope.quiet_until
      else
        local _, free_at = slow_path().first_of(scope, 'held', closed, math.huge)
        next_at = free_at and math.max(free_at, NOW) or 0
      end
    end
  end
end
save_all(known)
-- Wake receives of other gateways for queues that were freed and not granted: those gateways may be able to read queues
-- that are closed for this one.
for _, settled_scope in pairs(known) do
  local is_taken = settled_scope == scope and row and not is_more and not CLOSED
  if settled_scope and settled_scope.is_freed and not is_taken then wake(settled_scope.client) end
end
if WAIT and not row and #unknown_queues == 0 then scope_slow_path().park(WAIT) end
local grants = {}
if row then
  grants[1] = {row.queue, row.committed, row.batch_end, row.epoch, row.attempts, row.granted_at, row.locked_until,
    row.serves, row.serves == 1 and row.lease_expired or 0}
end
local reply = {scope.incarnation, settled, grants, state, next_at, HAS_OTHER_WAITERS and is_more}
if rewound > 0 or #lost > 0 or #exhausted > 0 or #unknown_queues > 0 then
  reply[7], reply[8], reply[9], reply[10] = rewound, lost, exhausted, unknown_queues
end
return cmsgpack.pack(reply)
