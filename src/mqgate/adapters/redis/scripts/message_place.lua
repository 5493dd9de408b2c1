-- Say what pulls found, or that nobody is left to take it: which offsets of each grant stay granted.
--
-- What lies behind `after` goes back at once, uncounted; what a filter did not keep is settled; in an ordered group a
-- message behind an unsettled one of its key waits for it. A grant no longer current changes nothing. One that was served
-- again is placed by the last who was; for the others it counts as gone back.
--
-- {{lease, serve, after, {offset, key or false} of what is wanted, or false}, ..}; a lease is {client, queue, start,
-- next, epoch, incarnation}
local scope = open_book('')
if not scope then return false end
local B = book()
local shut, fail, finish, ordered, first_of_key = B.shut, B.fail, B.finish, B.ordered, B.first_of_key

-- Whether a new range, as far as it was given, is untouched and the last one granted: then the cursor simply goes back.
local function is_tail(grant)
  local row = queue_of(scope, grant.queue)
  if not row or grant.delivery ~= 1 or row.cursor ~= grant.start + last_given(grant) then return false end
  for number = 1, last_given(grant) do
    if grant.letters[number] ~= OPEN then return false end
  end
  -- A message that has a row of its own is granted by that row, never by the cursor as well.
  return call('ZCOUNT', scope.base .. ':failed:' .. grant.queue, grant.start, row.cursor - 1) == 0
end

local function clear_order_from(queue, offset)
  if IS_ORDERED == 0 then return end
  local keys = call('HGETALL', scope.base .. ':keys:' .. queue)
  for i = 1, #keys, 2 do
    if tonumber(keys[i]) >= offset then
      call('HDEL', scope.base .. ':keys:' .. queue, keys[i])
      call('ZREM', scope.base .. ':order:' .. queue, ordered(keys[i + 1], tonumber(keys[i])))
    end
  end
end

local function give_back(grant, after)
  local is_all = is_tail(grant)
  local has_any = false
  for number, letter in ipairs(grant.letters) do
    local offset = grant.start + number - 1
    if letter == OPEN and offset >= after then
      has_any = true
      shut(scope, grant, number, NOT_GIVEN)
      if not is_all then
        fail(scope, {queue = grant.queue, offset = offset, epoch = grant.epoch, delivery = grant.delivery - 1,
          ready_at = NOW, first_at = grant.granted_at, last_at = NOW})
      end
    end
  end
  if not has_any then return end
  if is_all then
    local cursor = math.max(after, grant.start)
    local row = queue_of(scope, grant.queue)
    row.cursor, row.placing, row.is_changed = cursor, 0, true
    clear_order_from(grant.queue, cursor)
  end
  wake('', NOW)
end

-- A message waits for an earlier one of its key.
local function keep_order(grant, number, key)
  local offset = grant.start + number - 1
  call('ZADD', scope.base .. ':order:' .. grant.queue, 0, ordered(key, offset))
  call('HSETNX', scope.base .. ':keys:' .. grant.queue, string.format('%d', offset), key)
  if first_of_key(scope, grant.queue, key) < offset then
    shut(scope, grant, number, NOT_GIVEN)
    fail(scope, {queue = grant.queue, offset = offset, epoch = grant.epoch, delivery = 0, first_at = grant.granted_at,
      last_at = NOW})
  end
end

-- Nothing of a grant is its attempt's; an attempt that finds nothing would look at all such grants at each step.
local function leave_attempt(grant)
  local packed, epochs = call('HGET', scope.base .. ':attempts', grant.attempt), {}
  for _, epoch in ipairs(packed and cmsgpack.unpack(packed) or {}) do
    if epoch ~= grant.epoch then epochs[#epochs + 1] = epoch end
  end
  if #epochs > 0 then
    call('HSET', scope.base .. ':attempts', grant.attempt, cmsgpack.pack(epochs))
  else
    call('HDEL', scope.base .. ':attempts', grant.attempt)
  end
  grant.attempt, grant.shape = '', ''
end

local placed = {}
for i, placement in ipairs(R[1]) do
  local lease, serve, after, wanted = unpack(placement)
  local stay = {}
  local grant = lease[6] == scope.incarnation and grant_at(scope, lease[5])
  local is_last = grant and grant.serves == serve and after > grant.start
  if grant and (is_last or (serve <= grant.serves and seldom().is_nobodys(grant, serve))) then
    if not is_last then after = grant.start end
    local before = grant.open
    give_back(grant, after)
    local kept = nil
    if wanted then
      kept = {}
      for _, each in ipairs(wanted) do kept[each[1]] = each end
    end
    for number, letter in ipairs(grant.letters) do
      local offset = grant.start + number - 1
      if letter == OPEN and kept and not kept[offset] then
        shut(scope, grant, number, NOT_GIVEN)
        finish(scope, grant.queue, offset)
      elseif letter == OPEN and kept and IS_ORDERED == 1 and kept[offset][2] then
        keep_order(grant, number, kept[offset][2])
      end
    end
    local row = queue_of(scope, grant.queue)
    if row and row.placing == grant.epoch then
      row.placing, row.is_changed = 0, true
      -- Until its keys were known nothing else of this queue was granted.
      wake('', NOW)
    end
    seldom().refund(before - grant.open)
    grant.is_changed = true
    for number, letter in ipairs(grant.letters) do
      if letter == OPEN then
        stay[#stay + 1] = grant.start + number - 1
      else
        -- What an answer was served is what is open now.
        if letter == ENDED then grant.letters[number] = NOT_GIVEN end
      end
    end
    if grant.attempt ~= '' and last_given(grant) == 0 then leave_attempt(grant) end
  end
  placed[i] = stay
end
close_book(scope)
return cmsgpack.pack(placed)
