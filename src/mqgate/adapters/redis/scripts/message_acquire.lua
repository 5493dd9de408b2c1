-- Apply the carried settlements, then lease single messages: those ready again first, then new ones, queues in turn.
-- Neighbours of a queue that failed as often, and alike, are one grant. An attempt repeated while nothing of it was touched gets
-- the same. `is_repeat`: the answer to this very request may have been lost; what it was given is given again.
local scope = open_book('', set_of(R.closed))
if not scope or is_other(scope) then return cmsgpack.pack({known = false}) end
local answer = {known = true, incarnation = scope.incarnation, grants = {}, state = 'ok', lost = {}}
local given = 0

local function repeated()
  local found = {}
  for _, epoch in ipairs(call('ZRANGE', scope.base .. ':leases', 0, -1)) do
    local grant = grant_at(scope, tonumber(epoch))
    if grant.nonce == R.nonce then found[#found + 1] = grant end
  end
  return found
end

-- The grants that the attempt was given, while nothing of them was touched; nil if something was.
local function of_attempt()
  local packed = R.attempt and call('HGET', scope.base .. ':attempts', R.attempt)
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
  local lease = settlement.lease
  if lease.epoch ~= grant.epoch or lease.incarnation ~= scope.incarnation then return false end
  for _, offset in ipairs(settlement.offsets) do
    if is_applied(judge(scope, settlement, offset, grant, offset - grant.start + 1)) then return true end
  end
  return false
end

-- An attempt repeated with other parameters is refused, and nothing changes; unless this very request settles it.
local function is_mismatch()
  local differs = false
  for _, grant in ipairs(of_attempt() or {}) do
    if until_of(grant) <= NOW then return false end
    differs = differs or grant.shape ~= R.shape
    for _, settlement in ipairs(R.settlements or {}) do
      if settlement.verb ~= 'extend' and settles(settlement, grant) then return false end
    end
  end
  return differs
end

-- Give the attempt the same again, as far as it can be read.
local function replay()
  local grants, found = of_attempt(), {}
  if not grants then
    -- From here on the attempt means what it is given next.
    call('HDEL', scope.base .. ':attempts', R.attempt)
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

local function add(queue, start, count, delivery, again, lapsed)
  scope.epoch = scope.epoch + 1
  scope.in_flight = scope.in_flight + count
  given = given + count
  local letters = {}
  for number = 1, count do letters[number] = OPEN end
  local grant = {epoch = scope.epoch, queue = queue, start = start, letters = letters, delivery = delivery,
    granted_at = NOW, base_until = NOW + R.visibility, client = R.polled_by, serves = 1, again = again,
    attempt = R.attempt or '', shape = R.shape, nonce = R.nonce, lapsed = lapsed and count or 0, open = count, was_open = 0,
    is_changed = true}
  scope.grants[scope.epoch] = grant
  answer.grants[#answer.grants + 1] = grant_of(scope, grant)
  return grant
end

local function redeliver(most)
  local run, runs = nil, {}
  for _, row in ipairs(due(scope, most)) do
    local queue = queue_of(scope, row.queue)
    if not queue or row.offset < queue.min then
      finish(scope, row.queue, row.offset)
      if queue then change(queue, 'expired', queue.expired + 1) end
      answer.lost[#answer.lost + 1] = {row.queue, row.offset, row.offset + 1}
    else
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
      put_failed(scope, row)
    end
  end
end

local function grant_fresh(most)
  if most <= 0 then return end
  -- Queues that are granted change their place in the index only when the step is written.
  first_fresh(scope, function(row)
    local skipped = math.max(row.min - row.cursor, 0)
    local cursor = row.cursor + skipped
    local committed = row.committed < row.cursor and row.committed or cursor
    local count = math.min(most, row.max - cursor, committed + MAX_SPAN - cursor)
    if row.placing == 0 and count > 0 then
      local grant = add(row.queue, cursor, count, 1, false)
      change(row, 'cursor', cursor + count, 'committed', committed, 'placing', GROUP.is_ordered and grant.epoch or 0,
        'served_at', NOW, 'last_client', R.polled_by, 'expired', row.expired + skipped)
      if skipped > 0 then answer.lost[#answer.lost + 1] = {row.queue, cursor - skipped, cursor} end
      most = most - count
    end
    return most == 0
  end)
end

-- Whether something is unsettled, or not granted yet.
local function has_backlog()
  return call('ZCARD', scope.base .. ':fresh') > 0 or scope.in_flight > 0 or call('HLEN', scope.base .. ':failed') > 0
end

local function grant_all()
  local room = math.min(R.most, GROUP.max_in_flight - scope.in_flight)
  if room <= 0 then
    answer.state = 'in_flight_cap'
    return
  end
  local allowed = GROUP.rate and take_tokens(room) or room
  if allowed > 0 then redeliver(allowed) end
  grant_fresh(allowed - given)
  if GROUP.rate then refund(allowed - given) end
  if given == 0 and has_backlog() then
    answer.state = 'busy'
    if allowed == 0 and (first_fresh(scope, is_any) or #due(scope, 1) > 0) then answer.state = 'rate_limited' end
  end
end

-- A grant of this attempt: remembered under its name; what it had in closed queues is no longer its own.
local function keep_attempt()
  local epochs = {}
  local packed = call('HGET', scope.base .. ':attempts', R.attempt)
  for _, epoch in ipairs(packed and cmsgpack.unpack(packed) or {}) do
    local grant = grant_at(scope, epoch)
    if grant and not scope.closed[grant.queue] then epochs[#epochs + 1] = epoch end
  end
  for _, grant in ipairs(answer.grants) do epochs[#epochs + 1] = grant.lease.epoch end
  call('HSET', scope.base .. ':attempts', R.attempt, cmsgpack.pack(epochs))
end

-- When something becomes ready by time alone. Without tokens, or at the cap, what is ready is no news.
local function next_at()
  if answer.state == 'rate_limited' then return next_token_at() end
  local earliest
  local function look(index, queue_in)
    local from = 0
    repeat
      local found = call('ZRANGE', scope.base .. index, from, from + 7, 'WITHSCORES')
      for i = 1, #found, 2 do
        if answer.state == 'in_flight_cap' or not scope.closed[queue_in(found[i])] then
          earliest = math.min(earliest or math.huge, tonumber(found[i + 1]))
          return
        end
      end
      from = from + 8
    until #found == 0
  end
  look(':leases', function(epoch) return next(scope.closed) and grant_at(scope, tonumber(epoch)).queue end)
  if answer.state ~= 'in_flight_cap' then look(':due', function(name) return name:match('^(.*) %d+$') end) end
  return earliest and math.max(earliest, NOW)
end

if is_mismatch() then return cmsgpack.pack({known = true, mismatch = true}) end
answer.settled = settle_all(scope, R.settlements)
-- Before any answer: ends of queues are told once.
answer.rewound, answer.strangers = see_heads(scope, R.heads, scope.closed)
if R.seen then see_client(R.seen) end
if #answer.strangers > 0 then
  close_book(scope)
  answer.doomed = dying(scope)
  return cmsgpack.pack(answer)
end
end_leases(scope)
local same = R.is_repeat and repeated() or {}
if #same == 0 and R.attempt then same = replay() end
if #same > 0 then
  for i, grant in ipairs(same) do answer.grants[i] = grant_of(scope, grant) end
elseif GROUP.is_paused then
  answer.state = 'paused'
else
  grant_all()
  if R.attempt and given > 0 then keep_attempt() end
end
close_book(scope)
if call('SCARD', scope.base .. ':dying') > 0 then answer.doomed = dying(scope) end
if #same == 0 and answer.state ~= 'paused' then
  if given == 0 or R.is_crowded then answer.next_at = next_at() end
  if answer.state == 'busy' then
    answer.needs_settling = first_fresh(scope, function(row) return row.placing == 0 end) ~= nil
  end
  if given > 0 and R.is_crowded then answer.has_more = first_fresh(scope, is_any) ~= nil or #due(scope, 1) > 0 end
end
if R.wait and #answer.grants == 0 then park(R.wait) end
return cmsgpack.pack(answer)
