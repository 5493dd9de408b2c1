-- The usual receive: the ack of a whole batch in time, and the next batch, of the same queue or of another, while nothing
-- happens by time. It does and answers what queue_acquire.lua would, but makes no function and hardly a table, which is
-- most of what that takes. Whatever is not usual shows before anything is written, and is left to what follows.
--
-- In its short form, without which this is skipped: ARGV[5] numbers: most, visibility, nonce, wait, where the acked batch
-- began, where consumers stand behind it, its epoch, is_crowded   ARGV[6] who polls   ARGV[7] the acked queue
-- ARGV[8] its incarnation, which is the one that the gateway met last
-- Returns 'u' and, packed: start, next, epoch, now, next_at, has_more; the queue
if ARGV[6] then
  local most, visibility, nonce, wait, start, after, acked, is_crowded = struct.unpack('<dddddddd', ARGV[5])
  local polled_by, queue, incarnation = ARGV[6], ARGV[7], ARGV[8]
  local state = G .. ':state'
  repeat
    local found = call('HMGET', state, 'run', 'incarnation', 'calm', queue)
    local calm = tonumber(found[3]) or 0
    if found[1] ~= RUN or found[2] ~= incarnation or not found[4] or NOW >= calm or IS_REPEAT or most == 0 or IS_PAUSED == 1
      or RATE > 0 or MAX_ATTEMPTS < 2 then break end

    -- The ack.
    local min, max, told_at, boot, committed, epoch, ended_by, swept, forgotten, batch_end, granted_at, locked_until,
      free_at, serves, returned, its_nonce, attempts, exhausted, first_at, lapsed, waiting_since, last_consumed_at, expired,
      held_at, aged_at, locked_by, attempt, shape, reason = struct.unpack(ROW, found[4])
    local is_current = epoch == acked and ended_by == 0 and epoch > swept and epoch > forgotten and committed == start
    if not is_current or NOW >= locked_until or free_at == 0 or exhausted > 0 or attempt ~= '' then break end
    committed, last_consumed_at = after, NOW
    if committed < min then break end
    local is_free = max > committed and max > min
    if is_free and waiting_since + AGEING <= NOW then break end

    -- The queue with the largest backlog: this one, or the first that is listed. `left`: this one's row, if it is not.
    local listed = call('ZRANGE', G .. ':free', 0, 1, 'WITHSCORES')
    local other = listed[1]
    local is_more = listed[3] or other and is_free
    local left, left_line, name, score, its_score
    if other then
      name, score, its_score = string.format(NAME, NOW, queue), math.max(committed, min) - max, tonumber(listed[2])
    end
    if not is_free or other and (its_score < score or its_score == score and other < name) then
      if not other or is_free and (aged_at == 0 or waiting_since < aged_at) then break end
      left = struct.pack(ROW, min, max, told_at, boot, committed, epoch, ACKED, swept, forgotten, batch_end, granted_at,
        NOW, 0, 0, returned, its_nonce, 0, 0, 0, lapsed, waiting_since, NOW, expired, held_at, aged_at, #locked_by,
        locked_by, 0, '', #shape, shape, 0, '')
      left_line = string.format(LINE, min, max, committed, epoch, 0, NOW, NOW, locked_by)
      queue = other:sub(17)
      min, max, told_at, boot, committed, epoch, ended_by, swept, forgotten, batch_end, granted_at, locked_until, free_at,
        serves, returned, its_nonce, attempts, exhausted, first_at, lapsed, waiting_since, last_consumed_at, expired,
        held_at, aged_at, locked_by, attempt, shape, reason = struct.unpack(ROW, call('HGET', state, queue))
      if ended_by ~= ACKED or serves > 0 or attempts > 0 or attempt ~= '' or reason ~= '' then break end
    end
    if committed < min then break end

    -- The grant; its entry in `held` must not be late.
    epoch, batch_end, locked_until = epoch + 1, math.min(committed + most, max), NOW + visibility
    local jitter = 1 + JITTER * (2 * ((DRAW + 0.618034) % 1) - 1)
    free_at = locked_until + math.floor(math.min(math.min(FIRST_BACKOFF, MOST_BACKOFF) * jitter, MOST_BACKOFF))
    if held_at == 0 or free_at < held_at then break end
    -- Others would have to be told of what is left.
    if is_more and call('EXISTS', G .. ':parked') == 1 then break end

    local row = struct.pack(ROW, min, max, told_at, boot, committed, epoch, 0, swept, forgotten, batch_end, NOW, locked_until,
      free_at, 1, 0, nonce, 1, 0, NOW, 0, NOW, last_consumed_at, expired, held_at, aged_at, #polled_by, polled_by, 0, '',
      #shape, shape, 0, '')
    local line = string.format(LINE, min, max, committed, epoch, 1, locked_until, last_consumed_at, polled_by)
    if left then
      call('HSET', state, queue, row, ARGV[7], left)
      call('HSET', G .. ':positions', queue, line, ARGV[7], left_line)
      call('ZREM', G .. ':free', other)
      if is_free then call('ZADD', G .. ':free', score, name) end
    else
      call('HSET', state, queue, row)
      call('HSET', G .. ':positions', queue, line)
    end
    local next_at, has_more = is_crowded * calm, is_more and is_crowded or 0
    do return struct.pack('<c1i8i8i8i8i8i8c0', 'u', committed, batch_end, epoch, NOW, next_at, has_more, queue) end
  until true
  ARGV[5] = cmsgpack.pack({'', most, visibility, polled_by, nonce, is_crowded == 1, incarnation, wait > 0 and wait, false,
    {{'ack', '', ARGV[7], start, after, acked, incarnation, visibility, false, false, false}}, false, false, false, ''})
end
