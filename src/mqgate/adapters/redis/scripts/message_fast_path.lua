-- Fast path of message_acquire.lua for the common receive: it acks all messages of a first delivery before their lease
-- ends and is granted new messages of one queue, while quiet_until is not reached. The result is that of
-- message_acquire.lua. Every check comes before the first write; if one fails, the request is converted to the long
-- form.
-- Short form and reply are those of queue_fast_path.lua.
if ARGV[6] then
  local limit, visibility, nonce, wait, start, after, acked, has_other_waiters = struct.unpack('<dddddddd', ARGV[5])
  local polled_by, queue, incarnation = ARGV[6], ARGV[7], ARGV[8]
  local state, grants = GROUP .. ':state', GROUP .. ':grants'
  repeat
    local found = call('HMGET', state, 'run', 'incarnation', 'calm', 'epoch', 'in_flight', queue)
    local packed = call('HGET', grants, acked)
    local quiet_until, epoch, in_flight = tonumber(found[3]) or 0, tonumber(found[4]) or 0, tonumber(found[5]) or 0
    if found[1] ~= RUN or found[2] ~= incarnation or not found[6] or not packed or NOW >= quiet_until or IS_REPEAT
      or limit == 0 or IS_PAUSED == 1 or RATE > 0 or IS_ORDERED == 1 or in_flight >= MAX_IN_FLIGHT then break end
    -- This grant would be followed by a deletion of old grants.
    if (epoch + 1) % FORGET_INTERVAL == 0 then break end

    -- The ack.
    local its_start, delivery, granted_at, base_until, serves, again, acked_nonce, lease_expired, open, returned,
      its_queue, states, client, attempt, fingerprint, ends = struct.unpack(GRANT, packed)
    local min, max, bounds_reported_at, boot, committed, cursor, revoked_epoch, placing, served_at, last_consumed_at,
      expired, last_client = struct.unpack(ROW, found[6])
    local count = after - start
    local is_whole = its_start == start and open == count and #states == count and its_queue == queue
    if not is_whole or acked <= revoked_epoch or again == 1 or ends ~= '' or NOW >= base_until then break end
    local open_grants = call('ZRANGE', GROUP .. ':open:' .. queue, 0, 1, 'WITHSCORES')
    local failed = call('ZRANGE', GROUP .. ':failed:' .. queue, 0, 0)
    local first_open = open_grants[tonumber(open_grants[1]) == acked and 4 or 2]
    local was_committed = committed
    committed = math.min(tonumber(first_open) or cursor, tonumber(failed[1]) or cursor)
    -- Parked receives must be woken.
    if committed ~= was_committed and cursor - was_committed >= MAX_SPAN then break end
    last_consumed_at, in_flight = NOW, in_flight - count

    -- Grant from the least recently served queue. `left` is the row of the acked queue if another one is chosen.
    local fresh = call('ZRANGE', GROUP .. ':fresh', 0, 1)
    if not fresh[1] then break end
    local left, left_line
    if fresh[1] ~= queue then
      left = struct.pack(ROW, min, max, bounds_reported_at, boot, committed, cursor, revoked_epoch, placing, served_at,
        NOW, expired, #last_client, last_client)
      left_line = string.format(LINE, min, max, committed, cursor, NOW, last_client)
      queue = fresh[1]
      min, max, bounds_reported_at, boot, committed, cursor, revoked_epoch, placing, served_at, last_consumed_at,
        expired, last_client = struct.unpack(ROW, call('HGET', state, queue))
    end
    committed = math.min(committed, cursor)
    local room = math.min(limit, MAX_IN_FLIGHT - in_flight)
    if placing > 0 or cursor < min or room > max - cursor or room > committed + MAX_SPAN - cursor then break end
    epoch, in_flight = epoch + 1, in_flight + room
    local first, till = cursor, NOW + visibility
    cursor, quiet_until = cursor + room, math.min(quiet_until, till)

    call('HSET', grants, acked, struct.pack(GRANT, start, delivery, granted_at, base_until, serves, 0, acked_nonce,
      lease_expired, 0, returned, #its_queue, its_queue, count, string.rep('a', count), #client, client, #attempt,
      attempt, #fingerprint, fingerprint, 0, ''), epoch, struct.pack(GRANT, first, 1, NOW, till, 1, 0, nonce, 0, room,
      0, #queue, queue, room, string.rep('o', room), #polled_by, polled_by, 0, '', 0, '', 0, ''))
    call('RPUSH', GROUP .. ':ended', acked .. ' ' .. NOW)
    call('ZREM', GROUP .. ':open:' .. its_queue, acked)
    call('ZADD', GROUP .. ':open:' .. queue, first, epoch)
    call('ZREM', GROUP .. ':leases', acked)
    call('ZADD', GROUP .. ':leases', till, epoch)
    local is_fresh = max > cursor
    if is_fresh then call('ZADD', GROUP .. ':fresh', NOW, queue) else call('ZREM', GROUP .. ':fresh', queue) end
    local row = struct.pack(ROW, min, max, bounds_reported_at, boot, committed, cursor, revoked_epoch, 0, NOW,
      last_consumed_at, expired, #polled_by, polled_by)
    local line = string.format(LINE, min, max, committed, cursor, last_consumed_at, polled_by)
    if left then
      call('HSET', state, 'epoch', epoch, 'in_flight', in_flight, 'calm', quiet_until, queue, row, its_queue, left)
      call('HSET', GROUP .. ':positions', queue, line, its_queue, left_line)
    else
      call('HSET', state, 'epoch', epoch, 'in_flight', in_flight, 'calm', quiet_until, queue, row)
      call('HSET', GROUP .. ':positions', queue, line)
    end
    local next_at, has_more = has_other_waiters * quiet_until, (is_fresh or fresh[2]) and has_other_waiters or 0
    do return struct.pack('<c1i8i8i8i8i8i8c0', 'u', first, cursor, epoch, NOW, next_at, has_more, queue) end
  until true
  local offsets = {}
  for offset = start, after - 1 do offsets[#offsets + 1] = offset end
  local ack = {'ack', '', ARGV[7], start, after, acked, incarnation, visibility, false, false, false, offsets}
  ARGV[5] = cmsgpack.pack({'', limit, visibility, polled_by, nonce, has_other_waiters == 1, incarnation,
    wait > 0 and wait, false, {ack}, ARGV[9] ~= '' and cmsgpack.unpack(ARGV[9]), false, false, ''})
end
