-- Apply the carried settlements, then choose and lock one queue. One grant, or why there is none.
--
-- Free queues with backlog; unserved for 30 s first, oldest first; then the largest backlog; ties go to the least
-- recently consumed. An attempt repeated while its lease is untouched gets the same lease. `is_repeat`: the answer to
-- this very request may have been lost; what it was given is given again.
local scopes, known = scopes_of()
local scope = scopes(R.client)
if not scope or is_other(scope) then return cmsgpack.pack({known = false}) end
local closed = set_of(R.closed)
local answer = {known = true, incarnation = scope.incarnation, settled = {}, grants = {}, doomed = {}, state = 'ok', lost = {}}

local function replay()
  if R.is_repeat then
    for _, queue in ipairs(call('ZRANGE', scope.base .. ':held', 0, -1)) do
      local row = queue_of(scope, queue)
      if tonumber(row.nonce) == R.nonce and NOW < row.locked_until then return row end
    end
  end
  local queue = R.attempt and call('HGET', scope.base .. ':attempts', R.attempt)
  local row = queue and queue_of(scope, queue)
  if not row or row.attempt ~= R.attempt or row.locked_until <= NOW or closed[queue] then return nil end
  change(row, 'serves', row.serves + 1)
  return row
end

-- Lock a queue; false: no tokens.
local function grant(row)
  local expired = math.max(row.min - row.committed, 0)
  local attempts = expired > 0 and 1 or row.attempts + 1
  local committed = row.committed + expired
  local most = attempts > math.floor(GROUP.max_attempts / 2) and 1 or R.most
  most = math.min(most, row.max - committed)
  if GROUP.rate then
    most = take_tokens(most)
    if most == 0 then return false end
  end
  local till = NOW + R.visibility
  leave_attempt(scope, row)
  if expired > 0 then answer.lost[1] = {row.queue, row.committed, committed} end
  change(row, 'lapsed', row.serves > 0 and math.max(row.batch_end - committed, 0) or 0)
  change(row, 'committed', committed, 'epoch', row.epoch + 1, 'batch_end', committed + most, 'granted_at', NOW,
    'locked_until', till, 'held', 1, 'free_at', till + backoff(attempts), 'serves', 1, 'attempts', attempts,
    'exhausted', attempts >= GROUP.max_attempts and 1 or 0, 'waiting_since', NOW, 'locked_by', R.polled_by,
    'expired', row.expired + expired, 'nonce', R.nonce, 'shape', R.shape)
  if attempts == 1 then change(row, 'first_at', NOW) end
  if R.attempt then
    change(row, 'attempt', R.attempt)
    call('HSET', scope.base .. ':attempts', R.attempt, row.queue)
  end
  return true
end

-- An attempt repeated with other parameters is refused, and nothing changes; unless this very request settles its lease.
local function is_mismatch()
  local queue = R.attempt and call('HGET', scope.base .. ':attempts', R.attempt)
  local row = queue and queue_of(scope, queue)
  if not row or row.attempt ~= R.attempt or row.locked_until <= NOW or row.shape == R.shape then return false end
  for _, settlement in ipairs(R.settlements or {}) do
    local is_here = settlement.lease.client == scope.client and settlement.lease.queue == queue
    if is_here and settlement.verb ~= 'extend' and is_applied(judge(scope, row, settlement)) then return false end
  end
  return true
end

-- Who waits elsewhere hears of what was freed, and not taken again: it may be able to read what is closed for us.
local function tell_freed(is_taken)
  for _, each in pairs(known) do
    local is_news = each and each.is_freed and not (each == scope and is_taken and not next(closed))
    if is_news then wake(each.client) end
  end
end

if is_mismatch() then return cmsgpack.pack({known = true, mismatch = true}) end
for i, settlement in ipairs(R.settlements or {}) do
  local settled = settle(scopes, settlement)
  answer.settled[i] = told(settled)
  if settled.doomed and not closed[settlement.lease.queue] then answer.doomed[#answer.doomed + 1] = settled.doomed end
end
-- Before any answer: ends of queues are told once.
answer.rewound, answer.strangers = see_heads(scope, R.heads, closed)
if R.seen then see_client(R.seen) end
if #answer.strangers > 0 then
  save_all(known)
  tell_freed(false)
  return cmsgpack.pack(answer)
end
local row, is_more = replay(), false
if not row and GROUP.is_paused then
  answer.state = 'paused'
elseif not row and R.most > 0 then
  free_and_doom(scope, closed, answer.doomed)
  row = choose(scope, closed)
  if row and not grant(row) then
    answer.state = 'rate_limited'
    row = nil
  elseif not row then
    save_all(known)
    if is_busy(scope) then answer.state = 'busy' end
  elseif R.attempt and next(closed) then
    for queue in pairs(closed) do
      local other = queue ~= row.queue and queue_of(scope, queue)
      if other and other.attempt == R.attempt then change(other, 'attempt', '') end
    end
  end
  save_all(known)
  is_more = row ~= nil and (R.is_crowded or scope.is_freed) and choose(scope, closed) ~= nil
  if R.is_crowded then answer.has_more = is_more end
  if not row or R.is_crowded then
    local at
    if answer.state == 'rate_limited' then
      at = next_token_at()
    else
      local _, free_at = first_of(scope.base .. ':held', function(queue) return not closed[queue] end)
      at = free_at
    end
    answer.next_at = at and math.max(at, NOW)
  end
end
if row then answer.grants[1] = grant_of(scope, row) end
save_all(known)
tell_freed(row and not is_more)
if R.wait and not row then park(R.wait) end
return cmsgpack.pack(answer)
