-- The usual receive: the ack in time of all messages of a first delivery, and as many new ones of one queue, while nothing
-- happens by time. It does and answers what message_acquire.lua would, but makes no function and hardly a table. Whatever
-- is not usual shows before anything is written, and is left to what follows. Request and answer are those of
-- queue_usual.lua.
if ARGV[6] then
  local most, visibility, nonce, wait, start, after, acked, is_crowded = struct.unpack('<dddddddd', ARGV[5])
  local polled_by, queue, incarnation = ARGV[6], ARGV[7], ARGV[8]
  local state, grants = G .. ':state', G .. ':grants'
  repeat
    local found = call('HMGET', state, 'run', 'incarnation', 'calm', 'epoch', 'in_flight', queue)
    local packed = call('HGET', grants, acked)
    local calm, epoch, in_flight = tonumber(found[3]) or 0, tonumber(found[4]) or 0, tonumber(found[5]) or 0
    if found[1] ~= RUN or found[2] ~= incarnation or not found[6] or not packed or NOW >= calm or IS_REPEAT or most == 0
      or IS_PAUSED == 1 or RATE > 0 or IS_ORDERED == 1 or in_flight >= MAX_IN_FLIGHT then break end
    -- With this one old grants would be forgotten.
    if (epoch + 1) % FORGETTING == 0 then break end

    -- The ack.
    local its_start, delivery, granted_at, base_until, serves, again, its_nonce, lapsed, open, returned, its_queue, letters,
      client, attempt, shape, ends = struct.unpack(GRANT, packed)
    local min, max, told_at, boot, committed, cursor, swept, placing, served_at, last_consumed_at, expired,
      last_client = struct.unpack(ROW, found[6])
    local count = after - start
    local is_whole = its_start == start and open == count and #letters == count and its_queue == queue
    if not is_whole or acked <= swept or again == 1 or ends ~= '' or NOW >= base_until then break end
    local opened = call('ZRANGE', G .. ':open:' .. queue, 0, 1, 'WITHSCORES')
    local failed = call('ZRANGE', G .. ':failed:' .. queue, 0, 0)
    local first_open = opened[tonumber(opened[1]) == acked and 4 or 2]
    local was_committed = committed
    committed = math.min(tonumber(first_open) or cursor, tonumber(failed[1]) or cursor)
    -- Others would have to be told.
    if committed ~= was_committed and cursor - was_committed >= MAX_SPAN then break end
    last_consumed_at, in_flight = NOW, in_flight - count

    -- The grant, of the queue that was served least recently. `left`: the acked one's row, if that is another.
    local fresh = call('ZRANGE', G .. ':fresh', 0, 1)
    if not fresh[1] then break end
    local left, left_line
    if fresh[1] ~= queue then
      left = struct.pack(ROW, min, max, told_at, boot, committed, cursor, swept, placing, served_at, NOW, expired,
        #last_client, last_client)
      left_line = string.format(LINE, min, max, committed, cursor, NOW, last_client)
      queue = fresh[1]
      min, max, told_at, boot, committed, cursor, swept, placing, served_at, last_consumed_at, expired,
        last_client = struct.unpack(ROW, call('HGET', state, queue))
    end
    committed = math.min(committed, cursor)
    local room = math.min(most, MAX_IN_FLIGHT - in_flight)
    if placing > 0 or cursor < min or room > max - cursor or room > committed + MAX_SPAN - cursor then break end
    epoch, in_flight = epoch + 1, in_flight + room
    local first, till = cursor, NOW + visibility
    cursor, calm = cursor + room, math.min(calm, till)

    call('HSET', grants, acked, struct.pack(GRANT, start, delivery, granted_at, base_until, serves, 0, its_nonce, lapsed, 0,
      returned, #its_queue, its_queue, count, string.rep('a', count), #client, client, #attempt, attempt, #shape, shape, 0,
      ''), epoch, struct.pack(GRANT, first, 1, NOW, till, 1, 0, nonce, 0, room, 0, #queue, queue, room,
      string.rep('o', room), #polled_by, polled_by, 0, '', 0, '', 0, ''))
    call('RPUSH', G .. ':ended', acked .. ' ' .. NOW)
    call('ZREM', G .. ':open:' .. its_queue, acked)
    call('ZADD', G .. ':open:' .. queue, first, epoch)
    call('ZREM', G .. ':leases', acked)
    call('ZADD', G .. ':leases', till, epoch)
    local is_fresh = max > cursor
    if is_fresh then call('ZADD', G .. ':fresh', NOW, queue) else call('ZREM', G .. ':fresh', queue) end
    local row = struct.pack(ROW, min, max, told_at, boot, committed, cursor, swept, 0, NOW, last_consumed_at, expired,
      #polled_by, polled_by)
    local line = string.format(LINE, min, max, committed, cursor, last_consumed_at, polled_by)
    if left then
      call('HSET', state, 'epoch', epoch, 'in_flight', in_flight, 'calm', calm, queue, row, its_queue, left)
      call('HSET', G .. ':positions', queue, line, its_queue, left_line)
    else
      call('HSET', state, 'epoch', epoch, 'in_flight', in_flight, 'calm', calm, queue, row)
      call('HSET', G .. ':positions', queue, line)
    end
    local next_at, has_more = is_crowded * calm, (is_fresh or fresh[2]) and is_crowded or 0
    do return struct.pack('<c1i8i8i8i8i8i8c0', 'u', first, cursor, epoch, NOW, next_at, has_more, queue) end
  until true
  local offsets = {}
  for offset = start, after - 1 do offsets[#offsets + 1] = offset end
  ARGV[5] = cmsgpack.pack({'', most, visibility, polled_by, nonce, is_crowded == 1, incarnation, wait > 0 and wait, false,
    {{'ack', '', ARGV[7], start, after, acked, incarnation, visibility, false, false, false, offsets}}, false, false, false,
    ''})
end
