-- Apply pull reports: offsets from `after` on are released without counting the delivery, messages that a filter did
-- not keep are settled, and in an ordered group a message waits for earlier unsettled messages of its key. A report on
-- a grant that is no longer current changes nothing. Of a grant that was served several times, only the report of the
-- last serve applies; reports of earlier serves count as not received.
--
-- ARGV[5] {{{lease, serve, after, kept}, ..}}; kept is {{offset, key or false}, ..} or false for all; a lease is
--         {client, queue, start, next, epoch, incarnation}
-- Returns nil: no state | {{offset that stays leased, ..} per report}
local scope = open_state('')
if not scope then return false end
local mode = slow_path()
local close_message, fail, settle_finally = mode.close_message, mode.fail, mode.settle_finally
local order_member, first_of_key = mode.order_member, mode.first_of_key

-- Return whether the grant is the last new range of its queue and fully open: then the cursor can be moved back.
local function is_last_range(grant)
  local row = queue_of(scope, grant.queue)
  if not row or grant.delivery ~= 1 or row.cursor ~= grant.start + last_given(grant) then return false end
  for number = 1, last_given(grant) do
    if grant.states[number] ~= OPEN then return false end
  end
  -- A message with a failed row is granted through that row, so the cursor must not grant it again.
  return call('ZCOUNT', scope.base .. ':failed:' .. grant.queue, grant.start, row.cursor - 1) == 0
end

local function clear_order_from(queue, offset)
  if IS_ORDERED == 0 then return end
  local keys = call('HGETALL', scope.base .. ':keys:' .. queue)
  for i = 1, #keys, 2 do
    if tonumber(keys[i]) >= offset then
      call('HDEL', scope.base .. ':keys:' .. queue, keys[i])
      call('ZREM', scope.base .. ':order:' .. queue, order_member(keys[i + 1], tonumber(keys[i])))
    end
  end
end

local function release(grant, after)
  local is_all = is_last_range(grant)
  local has_any = false
  for number, message_state in ipairs(grant.states) do
    local offset = grant.start + number - 1
    if message_state == OPEN and offset >= after then
      has_any = true
      close_message(scope, grant, number, NOT_GIVEN)
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

-- Record the key of a message. It waits if an earlier message of the key is unsettled.
local function keep_order(grant, number, key)
  local offset = grant.start + number - 1
  call('ZADD', scope.base .. ':order:' .. grant.queue, 0, order_member(key, offset))
  call('HSETNX', scope.base .. ':keys:' .. grant.queue, string.format('%d', offset), key)
  if first_of_key(scope, grant.queue, key) < offset then
    close_message(scope, grant, number, NOT_GIVEN)
    fail(scope, {queue = grant.queue, offset = offset, epoch = grant.epoch, delivery = 0, first_at = grant.granted_at,
      last_at = NOW})
  end
end

-- Remove an empty grant from its attempt: a repeated attempt would read all of its empty grants at each step.
local function drop_attempt(grant)
  local packed, epochs = call('HGET', scope.base .. ':attempts', grant.attempt), {}
  for _, epoch in ipairs(packed and cmsgpack.unpack(packed) or {}) do
    if epoch ~= grant.epoch then epochs[#epochs + 1] = epoch end
  end
  if #epochs > 0 then
    call('HSET', scope.base .. ':attempts', grant.attempt, cmsgpack.pack(epochs))
  else
    call('HDEL', scope.base .. ':attempts', grant.attempt)
  end
  grant.attempt, grant.fingerprint = '', ''
end

local results = {}
for i, report in ipairs(REQUEST[1]) do
  local lease, serve, after, wanted = unpack(report)
  local leased = {}
  local grant = lease[6] == scope.incarnation and grant_at(scope, lease[5])
  local is_last_serve = grant and grant.serves == serve and after > grant.start
  if grant and (is_last_serve or (serve <= grant.serves and scope_slow_path().all_serves_returned(grant, serve))) then
    if not is_last_serve then after = grant.start end
    local before = grant.open
    release(grant, after)
    local kept = nil
    if wanted then
      kept = {}
      for _, message in ipairs(wanted) do kept[message[1]] = message end
    end
    for number, message_state in ipairs(grant.states) do
      local offset = grant.start + number - 1
      if message_state == OPEN and kept and not kept[offset] then
        close_message(scope, grant, number, NOT_GIVEN)
        settle_finally(scope, grant.queue, offset)
      elseif message_state == OPEN and kept and IS_ORDERED == 1 and kept[offset][2] then
        keep_order(grant, number, kept[offset][2])
      end
    end
    local row = queue_of(scope, grant.queue)
    if row and row.placing == grant.epoch then
      row.placing, row.is_changed = 0, true
      -- While the report was missing, no other message of this queue could be granted.
      wake('', NOW)
    end
    scope_slow_path().refund(before - grant.open)
    grant.is_changed = true
    for number, message_state in ipairs(grant.states) do
      if message_state == OPEN then
        leased[#leased + 1] = grant.start + number - 1
      else
        -- The response contains only the messages that are open now.
        if message_state == ENDED then grant.states[number] = NOT_GIVEN end
      end
    end
    if grant.attempt ~= '' and last_given(grant) == 0 then drop_attempt(grant) end
  end
  results[i] = leased
end
close_state(scope)
return cmsgpack.pack(results)
