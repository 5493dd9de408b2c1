-- Apply the carried settlements, then choose and lock one queue. One grant, or why there is none.
--
-- Free queues with backlog; unserved for 30 s first, oldest first; then the largest backlog; ties go to the least
-- recently consumed. An attempt repeated while its lease is untouched gets the same lease. A request whose answer may
-- have been lost (IS_REPEAT) is given again what it was given.
--
-- {client, most, visibility, who polls, nonce, is_crowded, incarnation that the gateway met last, wait, attempt,
-- settlements, heads, closed, address of a client that is to be noted, what the attempt asks for}, from `incarnation` on
-- false if there is none.
-- Returns nil: no such state | 0: the attempt asks for something else | {incarnation, settled, grants, state, next_at,
-- has_more, rewound, lost, doomed, strangers}, the last four only if there is something in them.
local CLIENT, MOST, VISIBILITY, POLLED_BY, NONCE, IS_CROWDED, INCARNATION, WAIT, ATTEMPT, SETTLEMENTS, HEADS, CLOSED,
  ADDRESS, SHAPE = unpack(R)
local scopes, known = scopes_of()
local scope = scopes(CLIENT, SETTLEMENTS and SETTLEMENTS[1][3])
-- Made anew since the gateway last met it: it must tell again all that it told once.
if not scope or (INCARNATION and INCARNATION ~= scope.incarnation) then return false end
local closed = set_of(CLOSED)
local settled, lost, doomed, state = {}, {}, {}, 'ok'

-- What a usual receive does not need.
local function rarely()
  local A, B = {}, book()

  -- The queue that the attempt was given, while its lease is untouched.
  local function of_attempt()
    local queue = ATTEMPT and call('HGET', scope.base .. ':attempts', ATTEMPT)
    local row = queue and queue_of(scope, queue)
    return row and row.attempt == ATTEMPT and NOW < row.locked_until and row or nil
  end

  function A.replay()
    if IS_REPEAT then
      for _, queue in ipairs(call('ZRANGE', scope.base .. ':held', 0, -1)) do
        local row = queue_of(scope, queue)
        if row.free_at > 0 and row.nonce == NONCE and NOW < row.locked_until then return row end
      end
    end
    local row = of_attempt()
    if not row or closed[row.queue] then return nil end
    row.serves, row.is_changed = row.serves + 1, true
    return row
  end

  -- An attempt repeated with other parameters is refused, and nothing changes; unless this very request settles its lease.
  function A.is_mismatch()
    local row = of_attempt()
    if not row or row.shape == SHAPE then return false end
    for _, settlement in ipairs(SETTLEMENTS or {}) do
      local verb, client, queue, start, _, epoch, incarnation = unpack(settlement)
      local is_here = client == scope.client and queue == row.queue and verb ~= 'extend'
      if is_here and is_applied(judge(scope, row, verb, queue, start, epoch, incarnation)) then return false end
    end
    return true
  end

  -- From here on the attempt means this queue, and what it had in closed ones ends by itself.
  function A.keep_attempt(row)
    row.attempt, row.shape = ATTEMPT, SHAPE
    call('HSET', scope.base .. ':attempts', ATTEMPT, row.queue)
    for queue in pairs(closed) do
      local other = queue ~= row.queue and queue_of(scope, queue)
      if other and other.attempt == ATTEMPT then other.attempt, other.is_changed = '', true end
    end
  end

  function A.pass_time() B.free_and_doom(scope, closed, doomed) end

  -- The queue that was not served for too long, once what time has done is done.
  function A.oldest()
    save(scope)
    local row = B.first_of(scope, 'aged', closed, NOW - AGEING)
    if not row then
      local _, free_at = B.first_of(scope, 'held', {}, math.huge)
      local _, since = B.first_of(scope, 'aged', {}, math.huge)
      local is_exhausted = call('SCARD', scope.base .. ':exhausted') > 0
      scope.calm = is_exhausted and 0 or math.min(free_at or 1e15, (since or 1e15) + AGEING)
      call('HSET', scope.base .. ':state', 'calm', scope.calm)
    end
    return row
  end

  -- Queues that retention has emptied: nothing there will ever be granted, so it is told now.
  function A.skip_emptied()
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

  -- Whether there is backlog although nothing could be chosen: held, stopped, or closed.
  function A.is_busy()
    if call('ZCARD', scope.base .. ':free') > 0 then return true end
    for _, index in ipairs({call('ZRANGE', scope.base .. ':held', 0, -1), call('SMEMBERS', scope.base .. ':exhausted')}) do
      for _, queue in ipairs(index) do
        if backlog_of(queue_of(scope, queue)) > 0 then return true end
      end
    end
    return false
  end

  return A
end

if ATTEMPT and rarely().is_mismatch() then return 0 end
for i, settlement in ipairs(SETTLEMENTS or {}) do
  local outcome, dead, till = settle(scopes, settlement)
  settled[i] = told(outcome, dead, till)
  if dead and not closed[settlement[3]] then doomed[#doomed + 1] = dead end
end
-- Before any answer: ends of queues are told once.
local rewound, strangers = 0, {}
if HEADS then rewound, strangers = seldom().see_heads(scope, HEADS, closed) end
if ADDRESS then seldom().see_client(POLLED_BY, ADDRESS) end
local row, is_more, next_at = nil, false, 0
if #strangers == 0 then
  row = (ATTEMPT or IS_REPEAT) and rarely().replay()
  if not row and IS_PAUSED == 1 then
    state = 'paused'
  elseif not row and MOST > 0 then
    local is_calm = NOW < scope.calm
    for _, each in pairs(scope.rows) do
      if each and is_free(each) and each.waiting_since + AGEING <= NOW then is_calm = false end
    end
    if not is_calm then rarely().pass_time() end
    repeat
      local old = not is_calm and rarely().oldest()
      -- The queue with the largest backlog, and whether there is another. Those that this step has looked at are judged
      -- as they are now, the others by the index; mostly it is one of the first two there.
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
      for queue, each in pairs(scope.rows) do
        if each and is_free(each) and not closed[queue] then
          local own = -backlog_of(each)
          count = count + 1
          if not best or own < score or (own == score and name_of(each) < name) then
            best, score, name = queue, own, name_of(each)
          end
        end
      end
      is_more = count > 1
      row = old or best and queue_of(scope, best)
    until not row or row.attempts < MAX_ATTEMPTS or not book().is_exhausted(scope, row, doomed)
    if row then
      -- What retention took counts for nothing; the second half of the attempts deliver singly.
      local expired = math.max(row.min - row.committed, 0)
      local attempts = expired > 0 and 1 or row.attempts + 1
      local committed = row.committed + expired
      local most = math.min(attempts > math.floor(MAX_ATTEMPTS / 2) and 1 or MOST, row.max - committed)
      if RATE > 0 then most = seldom().take_tokens(most) end
      if most == 0 then
        state, row, is_more = 'rate_limited', nil, false
      else
        if row.attempt ~= '' then book().leave_attempt(scope, row) end
        if expired > 0 then lost[1] = {row.queue, row.committed, committed} end
        row.lapsed = row.serves > 0 and math.max(row.batch_end - committed, 0) or 0
        next_epoch(scope, row)
        row.committed, row.batch_end, row.attempts = committed, committed + most, attempts
        row.granted_at, row.locked_until, row.locked_by = NOW, NOW + VISIBILITY, POLLED_BY
        row.free_at, row.serves, row.returned, row.nonce = row.locked_until + backoff(attempts), 1, 0, NONCE
        row.exhausted = attempts >= MAX_ATTEMPTS and 1 or 0
        row.waiting_since, row.expired, row.is_changed = NOW, row.expired + expired, true
        if attempts == 1 then row.first_at = NOW end
        if ATTEMPT then rarely().keep_attempt(row) end
      end
    else
      save(scope)
      rarely().skip_emptied()
      if rarely().is_busy() then state = 'busy' end
    end
    if state == 'rate_limited' then
      next_at = seldom().next_token_at()
    elseif not row or IS_CROWDED then
      save(scope)
      if row and not CLOSED and NOW < scope.calm then
        -- Early enough for those who wait: when it comes, who tries is told better.
        next_at = scope.calm
      else
        local _, free_at = book().first_of(scope, 'held', closed, math.huge)
        next_at = free_at and math.max(free_at, NOW) or 0
      end
    end
  end
end
save_all(known)
-- Who waits elsewhere hears of what was freed, and not taken again: it may be able to read what is closed for us.
for _, each in pairs(known) do
  local is_taken = each == scope and row and not is_more and not CLOSED
  if each and each.is_freed and not is_taken then wake(each.client) end
end
if WAIT and not row and #strangers == 0 then seldom().park(WAIT) end
local given = {}
if row then
  given[1] = {row.queue, row.committed, row.batch_end, row.epoch, row.attempts, row.granted_at, row.locked_until,
    row.serves, row.serves == 1 and row.lapsed or 0}
end
local answer = {scope.incarnation, settled, given, state, next_at, IS_CROWDED and is_more}
if rewound > 0 or #lost > 0 or #doomed > 0 or #strangers > 0 then
  answer[7], answer[8], answer[9], answer[10] = rewound, lost, doomed, strangers
end
return cmsgpack.pack(answer)
