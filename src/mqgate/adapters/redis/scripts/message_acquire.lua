-- Apply the carried settlements, then lease single messages: those ready again first, then new ones, queues in turn.
-- Neighbours of a queue that failed as often, and alike, are one grant. An attempt repeated while nothing of it was
-- touched gets the same. A request whose answer may have been lost (IS_REPEAT) is given again what it was given.
--
-- The request and the answer are those of queue_acquire.lua, but for two things: outcomes that are all the same are
-- told once, and there is an eleventh member, whether something must be settled before there can be more.
local _, MOST, VISIBILITY, POLLED_BY, NONCE, IS_CROWDED, INCARNATION, WAIT, ATTEMPT, SETTLEMENTS, HEADS, CLOSED,
  ADDRESS, SHAPE = unpack(R)
local scope = open_book('', set_of(CLOSED))
-- Made anew since the gateway last met it: it must tell again all that it told once.
if not scope or (INCARNATION and INCARNATION ~= scope.incarnation) then return false end
local grants, lost, doomed, state = {}, {}, {}, 'ok'
local given = 0

local function add(queue, start, count, delivery, again, lapsed)
  scope.epoch = scope.epoch + 1
  scope.in_flight = scope.in_flight + count
  given = given + count
  local letters = {}
  for number = 1, count do letters[number] = OPEN end
  local grant = {epoch = scope.epoch, queue = queue, start = start, letters = letters, delivery = delivery,
    granted_at = NOW, base_until = NOW + VISIBILITY, client = POLLED_BY, serves = 1, returned = 0, again = again,
    attempt = ATTEMPT or '', shape = ATTEMPT and SHAPE or '', ends = false, nonce = NONCE, lapsed = lapsed and count or 0, open = count,
    was_open = 0, is_changed = true}
  scope.grants[scope.epoch] = grant
  grants[#grants + 1] = {queue, start, start + count, scope.epoch, delivery, NOW, NOW + VISIBILITY, 1, grant.lapsed}
  return grant
end

-- What a usual receive does not need.
local function rarely()
  local A, B = {}, book()
  local judge, due, first_fresh = B.judge, B.due, B.first_fresh

  function A.repeated()
    local found = {}
    for _, epoch in ipairs(call('ZRANGE', scope.base .. ':leases', 0, -1)) do
      local grant = grant_at(scope, tonumber(epoch))
      if grant.nonce == NONCE then found[#found + 1] = grant end
    end
    return found
  end

  -- The grants that the attempt was given, while nothing of them was touched; nil if something was.
  local function of_attempt()
    local packed = ATTEMPT and call('HGET', scope.base .. ':attempts', ATTEMPT)
    local found = {}
    for _, epoch in ipairs(packed and cmsgpack.unpack(packed) or {}) do
      local grant = grant_at(scope, epoch)
      local has_any = false
      for _, letter in ipairs(grant and grant.letters or {}) do
        if letter ~= OPEN and letter ~= NOT_GIVEN then return nil end
        has_any = has_any or letter == OPEN
      end
      if has_any then found[#found + 1] = grant end
    end
    return found
  end

  local function settles(settlement, grant)
    local verb, _, queue, _, _, epoch, incarnation = unpack(settlement)
    if verb == 'extend' or epoch ~= grant.epoch or incarnation ~= scope.incarnation then return false end
    for _, offset in ipairs(settlement[12]) do
      if is_applied(judge(scope, verb, queue, epoch, offset, grant, offset - grant.start + 1)) then return true end
    end
    return false
  end

  -- An attempt repeated with other parameters is refused, and nothing changes; unless this very request settles it.
  function A.is_mismatch()
    local differs = false
    for _, grant in ipairs(of_attempt() or {}) do
      local row = queue_of(scope, grant.queue)
      -- Ended; or its keys were not told in time, and it goes back with this very step.
      local is_unplaced = row and row.placing == grant.epoch and grant.granted_at + PLACING <= NOW
      if is_unplaced or until_of(grant) <= NOW then return false end
      differs = differs or grant.shape ~= SHAPE
      for _, settlement in ipairs(SETTLEMENTS or {}) do
        if settles(settlement, grant) then return false end
      end
    end
    return differs
  end

  -- Give the attempt the same again, as far as it can be read.
  function A.replay()
    local grants, found = of_attempt(), {}
    if not grants then
      -- From here on the attempt means what it is given next.
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

  function A.redeliver(most)
    local run, runs = nil, {}
    for _, row in ipairs(due(scope, most)) do
      if row.offset >= queue_of(scope, row.queue).min and not B.is_doomed(scope, row) then
        local last = run and run[#run]
        local is_next = last and last.queue == row.queue and last.offset + 1 == row.offset
        if is_next and last.delivery == row.delivery and last.lapsed == row.lapsed then
          run[#run + 1] = row
        else
          run = {row}
          runs[#runs + 1] = run
        end
      end
    end
    for _, each in ipairs(runs) do
      local grant = add(each[1].queue, each[1].offset, #each, each[1].delivery + 1, true, each[1].lapsed)
      for _, row in ipairs(each) do
        row.ready_at, row.epoch, row.delivery, row.lapsed = false, grant.epoch, grant.delivery, false
        if row.delivery == 1 then row.first_at = NOW end
        B.put_failed(scope, row)
      end
    end
  end

  -- Queues that retention has emptied: nothing new there will ever be granted, so it is told now.
  function A.skip_emptied()
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

  -- Whether something is unsettled, or not granted yet.
  function A.has_backlog()
    return call('ZCARD', scope.base .. ':fresh') > 0 or scope.in_flight > 0 or call('HLEN', scope.base .. ':failed') > 0
  end

  -- A grant of this attempt: remembered under its name; what it had in closed queues is no longer its own.
  function A.keep_attempt()
    local epochs = {}
    local packed = call('HGET', scope.base .. ':attempts', ATTEMPT)
    for _, epoch in ipairs(packed and cmsgpack.unpack(packed) or {}) do
      local grant = grant_at(scope, epoch)
      if grant and not scope.closed[grant.queue] then epochs[#epochs + 1] = epoch end
    end
    for _, grant in ipairs(grants) do epochs[#epochs + 1] = grant[4] end
    call('HSET', scope.base .. ':attempts', ATTEMPT, cmsgpack.pack(epochs))
  end

  -- When something becomes ready by time alone. Without tokens, or at the cap, what is ready is no news.
  function A.next_at()
    if state == 'rate_limited' then return seldom().next_token_at() end
    local earliest
    local function look(index, queue_in)
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
    look(':leases', function(epoch) return next(scope.closed) and grant_at(scope, tonumber(epoch)).queue end)
    if state ~= 'in_flight_cap' then look(':due', function(name) return name:match('^(.*) %d+$') end) end
    return earliest and math.max(earliest, NOW)
  end

  return A
end

if ATTEMPT and rarely().is_mismatch() then return 0 end
local settled = SETTLEMENTS and settle_all(scope, SETTLEMENTS) or {}
-- Before any answer: ends of queues are told once.
local rewound, strangers = 0, {}
if HEADS then rewound, strangers = seldom().see_heads(scope, HEADS, scope.closed) end
if ADDRESS then seldom().see_client(POLLED_BY, ADDRESS) end
local next_time, has_more, needs_settling = false, false, false
local is_calm = true
if #strangers == 0 then
  take_stock(scope)
  is_calm = NOW < scope.calm and IS_ORDERED == 0
  if not is_calm then book().end_leases(scope) end
  local same = IS_REPEAT and rarely().repeated() or {}
  if #same == 0 and ATTEMPT then same = rarely().replay() end
  local room = math.min(MOST, MAX_IN_FLIGHT - scope.in_flight)
  if #same > 0 then
    for i, grant in ipairs(same) do grants[i] = grant_of(grant) end
  elseif IS_PAUSED == 1 or room <= 0 then
    state = IS_PAUSED == 1 and 'paused' or 'in_flight_cap'
    if not is_calm then book().doom_due(scope, MOST) end
  else
    if not is_calm then book().expire(scope, lost) end
    local allowed = RATE > 0 and seldom().take_tokens(room) or room
    if not is_calm and allowed == 0 then book().doom_due(scope, MOST) end
    if not is_calm and allowed > 0 then rarely().redeliver(allowed) end
    -- New messages: of the queues that were served least recently. Those that are granted change their place in the index
    -- only when the step is written.
    local seen, from, page, queues = 0, 0, 2, nil
    repeat
      if given == allowed then break end
      queues = call('ZRANGE', scope.base .. ':fresh', from, from + page - 1)
      for _, queue in ipairs(queues) do
        if given < allowed and seen < MOST_RANGES and not scope.closed[queue] then
          seen = seen + 1
          local row = queue_of(scope, queue)
          local skipped = math.max(row.min - row.cursor, 0)
          local cursor = row.cursor + skipped
          local committed = row.committed < row.cursor and row.committed or cursor
          local count = math.min(allowed - given, row.max - cursor, committed + MAX_SPAN - cursor)
          if row.placing == 0 and count > 0 then
            local grant = add(queue, cursor, count, 1, false)
            row.cursor, row.committed, row.placing = cursor + count, committed, IS_ORDERED == 1 and grant.epoch or 0
            row.served_at, row.last_client, row.expired, row.is_changed = NOW, POLLED_BY, row.expired + skipped, true
            if skipped > 0 then lost[#lost + 1] = {queue, cursor - skipped, cursor} end
          end
        end
      end
      from, page = from + page, MOST_RANGES
    until seen == MOST_RANGES or #queues == 0
    if RATE > 0 then seldom().refund(allowed - given) end
    if given == 0 and allowed > 0 then rarely().skip_emptied() end
    if given == 0 and rarely().has_backlog() then
      state = 'busy'
      if allowed == 0 and (book().first_fresh(scope, book().is_any) or #book().due(scope, 1) > 0) then
        state = 'rate_limited'
      end
    end
    if ATTEMPT and given > 0 then rarely().keep_attempt() end
  end
  if not is_calm then
    take_stock(scope)
    book().be_calm(scope)
  end
  close_book(scope)
  if #same == 0 and state ~= 'paused' then
    if given > 0 and IS_CROWDED and not CLOSED and NOW < scope.calm then
      -- Early enough for those who wait: when it comes, who tries is told better.
      next_time = scope.calm
    elseif given == 0 or IS_CROWDED then
      next_time = rarely().next_at()
    end
    if state == 'busy' then
      needs_settling = book().first_fresh(scope, function(row) return row.placing == 0 end) ~= nil
    end
    if given > 0 and IS_CROWDED then
      has_more = book().first_fresh(scope, book().is_any) ~= nil or #book().due(scope, 1) > 0
    end
  end
  if WAIT and #grants == 0 then seldom().park(WAIT) end
else
  close_book(scope)
end
if NOW >= scope.calm then doomed = book().dying(scope) end
local answer = {scope.incarnation, settled, grants, state, next_time or 0, has_more}
if rewound > 0 or #lost > 0 or #doomed > 0 or #strangers > 0 or needs_settling then
  answer[7], answer[8], answer[9], answer[10], answer[11] = rewound, lost, doomed, strangers, needs_settling
end
return cmsgpack.pack(answer)
