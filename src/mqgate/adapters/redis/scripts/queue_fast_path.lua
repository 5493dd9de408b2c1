-- Fast path of queue_acquire.lua for the common receive: it acks a whole batch before its lease ends and is granted the
-- next batch of the same or another queue, while quiet_until is not reached. The result is that of queue_acquire.lua,
-- but no function and few tables are created, which is most of the cost there. Every check comes before the first
-- write; if one fails, the request is converted to the long form and left to queue_acquire.lua.
--
-- Skipped unless the request has the short form:
-- ARGV[5] packed numbers: limit, visibility, nonce, wait, start of the acked batch, committed after the ack, its epoch,
--         has_other_waiters
-- ARGV[6] polling client   ARGV[7] acked queue   ARGV[8] its incarnation, the last one that the gateway has seen
-- ARGV[9] bounds, or '' if there are none; only applied if the chosen queue has fewer than `limit` messages without them
-- Returns 'u', then packed: start, next, epoch, now, next_at, has_more, queue
if ARGV[6] then
  local limit, visibility, nonce, wait, start, after, acked, has_other_waiters = struct.unpack('<dddddddd', ARGV[5])
  local polled_by, queue, incarnation = ARGV[6], ARGV[7], ARGV[8]
  local state = GROUP .. ':state'
  repeat
    local found = call('HMGET', state, 'run', 'incarnation', 'calm', queue)
    local quiet_until = tonumber(found[3]) or 0
    if found[1] ~= RUN or found[2] ~= incarnation or not found[4] or NOW >= quiet_until or IS_REPEAT or limit == 0
      or IS_PAUSED == 1 or RATE > 0 or MAX_ATTEMPTS < 2 then break end

    -- The ack.
    local min, max, bounds_reported_at, boot, committed, epoch, ended_by, revoked_epoch, forgotten, batch_end,
      granted_at, locked_until, free_at, serves, returned, acked_nonce, attempts, exhausted, first_at, lease_expired,
      waiting_since, last_consumed_at, expired, held_at, aged_at, locked_by, attempt, fingerprint,
      reason = struct.unpack(ROW, found[4])
    local is_current = epoch == acked and ended_by == 0 and epoch > revoked_epoch and epoch > forgotten
      and committed == start
    if not is_current or NOW >= locked_until or free_at == 0 or exhausted > 0 or attempt ~= '' then break end
    committed, last_consumed_at = after, NOW
    if committed < min then break end
    local is_free = max > committed and max > min
    if is_free and waiting_since + MAX_UNSERVED_MS <= NOW then break end

    -- Choose the queue with the largest backlog: the acked one, or the first of `free`. `left` is the row of the acked
    -- queue if another one is chosen.
    local listed = call('ZRANGE', GROUP .. ':free', 0, 1, 'WITHSCORES')
    local other = listed[1]
    local is_more = listed[3] or other and is_free
    local left, left_line, name, score, its_score
    if other then
      name, score, its_score = string.format(NAME, NOW, queue), math.max(committed, min) - max, tonumber(listed[2])
    end
    if not is_free or other and (its_score < score or its_score == score and other < name) then
      if not other or is_free and (aged_at == 0 or waiting_since < aged_at) then break end
      left = struct.pack(ROW, min, max, bounds_reported_at, boot, committed, epoch, ACKED, revoked_epoch, forgotten,
        batch_end, granted_at, NOW, 0, 0, returned, acked_nonce, 0, 0, 0, lease_expired, waiting_since, NOW, expired,
        held_at, aged_at, #locked_by, locked_by, 0, '', #fingerprint, fingerprint, 0, '')
      left_line = string.format(LINE, min, max, committed, epoch, 0, NOW, NOW, locked_by)
      queue = other:sub(17)
      min, max, bounds_reported_at, boot, committed, epoch, ended_by, revoked_epoch, forgotten, batch_end, granted_at,
        locked_until, free_at, serves, returned, acked_nonce, attempts, exhausted, first_at, lease_expired,
        waiting_since, last_consumed_at, expired, held_at, aged_at, locked_by, attempt, fingerprint,
        reason = struct.unpack(ROW, call('HGET', state, queue))
      if ended_by ~= ACKED or serves > 0 or attempts > 0 or attempt ~= '' or reason ~= '' then break end
    end
    if committed < min or ARGV[9] ~= '' and committed + limit > max then break end

    -- The grant. Its entry in `held` must not become late.
    epoch, batch_end, locked_until = epoch + 1, math.min(committed + limit, max), NOW + visibility
    local jitter = 1 + JITTER * (2 * ((DRAW + 0.618034) % 1) - 1)
    free_at = locked_until + math.floor(math.min(math.min(FIRST_BACKOFF, MAX_BACKOFF) * jitter, MAX_BACKOFF))
    if held_at == 0 or free_at < held_at then break end
    -- A parked receive must be woken for the remaining messages.
    if is_more and call('EXISTS', KEYS[7]) == 1 then break end

    local row = struct.pack(ROW, min, max, bounds_reported_at, boot, committed, epoch, 0, revoked_epoch, forgotten,
      batch_end, NOW, locked_until, free_at, 1, 0, nonce, 1, 0, NOW, 0, NOW, last_consumed_at, expired, held_at,
      aged_at, #polled_by, polled_by, 0, '', #fingerprint, fingerprint, 0, '')
    local line = string.format(LINE, min, max, committed, epoch, 1, locked_until, last_consumed_at, polled_by)
    if left then
      call('HSET', state, queue, row, ARGV[7], left)
      call('HSET', GROUP .. ':positions', queue, line, ARGV[7], left_line)
      call('ZREM', GROUP .. ':free', other)
      if is_free then call('ZADD', GROUP .. ':free', score, name) end
    else
      call('HSET', state, queue, row)
      call('HSET', GROUP .. ':positions', queue, line)
    end
    local next_at, has_more = has_other_waiters * quiet_until, is_more and has_other_waiters or 0
    do return struct.pack('<c1i8i8i8i8i8i8c0', 'u', committed, batch_end, epoch, NOW, next_at, has_more, queue) end
  until true
  local ack = {'ack', '', ARGV[7], start, after, acked, incarnation, visibility, false, false, false}
  ARGV[5] = cmsgpack.pack({'', limit, visibility, polled_by, nonce, has_other_waiters == 1, incarnation,
    wait > 0 and wait, false, {ack}, ARGV[9] ~= '' and cmsgpack.unpack(ARGV[9]), false, false, ''})
end
