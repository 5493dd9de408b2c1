-- name: epoch
SELECT epoch FROM lease_scope WHERE scope = ?

-- name: look
SELECT EXISTS (SELECT 1 FROM message_grant WHERE scope = ?1 AND open <> '0' AND until <= ?2),
    EXISTS (SELECT 1 FROM message_failed WHERE scope = ?1 AND ready_at <= ?2),
    EXISTS (SELECT 1 FROM message_failed WHERE scope = ?1 AND dying = 1),
    EXISTS (SELECT 1 FROM message_queue INDEXED BY overtaken_queues
        WHERE scope = ?1 AND committed < head_min AND committed < cursor)

-- name: set_counters
UPDATE lease_scope SET epoch = ?, in_flight = ? WHERE scope = ?

-- name: add_queue
INSERT INTO message_queue (scope, queue, head_min, head_max, committed, cursor, served_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)
ON CONFLICT DO NOTHING

-- name: see_head
UPDATE message_queue SET head_min = ?, head_max = ? WHERE scope = ? AND queue = ? RETURNING cursor

-- name: queue
SELECT {queue_columns} FROM message_queue WHERE scope = ? AND queue = ?

-- name: queues
SELECT {queue_columns} FROM message_queue WHERE scope = ?

-- name: fresh
SELECT {queue_columns} FROM message_queue WHERE scope = ? AND fresh > 0 ORDER BY served_at, queue LIMIT ?

-- name: fresh_open
SELECT {queue_columns} FROM message_queue WHERE scope = ?1 AND fresh > 0 AND queue NOT IN (SELECT value FROM json_each(?2))
ORDER BY served_at, queue LIMIT ?3

-- name: overtaken
SELECT {queue_columns} FROM message_queue INDEXED BY overtaken_queues
WHERE scope = ? AND committed < head_min AND committed < cursor ORDER BY queue

-- name: overtaken_of_queue
SELECT {failed_columns} FROM message_failed
WHERE scope = ? AND queue = ? AND offset < ? AND (ready_at IS NOT NULL OR dying = 1 OR delivery = 0) ORDER BY offset LIMIT ?

-- name: emptied
SELECT {queue_columns} FROM message_queue WHERE scope = ? AND fresh <= 0 AND cursor < head_min AND placing = 0

-- name: skip
UPDATE message_queue SET expired = expired + head_min - cursor, cursor = head_min, committed = ? WHERE scope = ? AND queue = ?

-- name: has_backlog
SELECT EXISTS (SELECT 1 FROM message_queue WHERE scope = ?1 AND (fresh > 0 OR committed < cursor))

-- name: advance
UPDATE message_queue SET cursor = ?, committed = ?, placing = ?, served_at = ?, last_client = ?, expired = expired + ?
WHERE scope = ? AND queue = ?

-- name: placed
UPDATE message_queue SET placing = 0 WHERE scope = ? AND queue = ? AND placing = ?

-- name: unplaced
SELECT {queue_columns} FROM message_queue WHERE scope = ? AND placing > 0

-- name: roll_back
UPDATE message_queue SET cursor = ?, placing = 0 WHERE scope = ? AND queue = ?

-- name: commit
UPDATE message_queue SET
    committed = min(
        coalesce((SELECT min(first_open) FROM message_grant WHERE scope = ?1 AND queue = ?2 AND open <> '0'), cursor),
        coalesce((SELECT min(offset) FROM message_failed WHERE scope = ?1 AND queue = ?2), cursor)),
    last_consumed_at = coalesce(?3, last_consumed_at)
WHERE scope = ?1 AND queue = ?2

-- name: expire
UPDATE message_queue SET expired = expired + ? WHERE scope = ? AND queue = ?

-- name: move
UPDATE message_queue SET committed = ?1, cursor = ?1, swept_epoch = ?2, placing = 0, served_at = ?3 WHERE scope = ?4 AND queue = ?5

-- name: add_grant
INSERT INTO message_grant (scope, epoch, queue, start, delivery, granted_at, until, base_until, given, open, acked, nacked,
    first_open, attempt, attempt_shape, client, again)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?8, '0', '0', ?4, ?9, ?10, ?11, ?12)

-- name: grant
SELECT {grant_columns} FROM message_grant WHERE scope = ? AND epoch = ?

-- name: save_grant
UPDATE message_grant SET given = ?, open = ?, acked = ?, nacked = ?, first_open = ?, until = ?, ends = ?, ended_at = ?,
    serves = ?, returned = ?, again = ?
WHERE scope = ? AND epoch = ?

-- name: ended_grants
SELECT {grant_columns} FROM message_grant WHERE scope = ? AND open <> '0' AND until <= ? ORDER BY until LIMIT 100

-- name: open_grants
SELECT {grant_columns} FROM message_grant WHERE scope = ? AND open <> '0'

-- name: held_grants
SELECT {grant_columns} FROM message_grant WHERE scope = ? AND open <> '0' AND (until > ? OR ends <> '{}')

-- name: open_grants_of_queue
SELECT {grant_columns} FROM message_grant INDEXED BY open_by_first WHERE scope = ? AND queue = ? AND open <> '0'

-- name: by_attempt
SELECT {grant_columns} FROM message_grant INDEXED BY grant_by_attempt WHERE scope = ? AND attempt = ?

-- name: forget_attempt
UPDATE message_grant INDEXED BY grant_by_attempt SET attempt = NULL WHERE scope = ? AND attempt = ?

-- name: leave_attempt
UPDATE message_grant INDEXED BY grant_by_attempt SET attempt = NULL
WHERE scope = ? AND attempt = ? AND queue IN (SELECT value FROM json_each(?))

-- name: leave_emptied
UPDATE message_grant SET attempt = NULL WHERE scope = ? AND epoch = ?

-- name: next_end
SELECT min(until) FROM message_grant WHERE scope = ? AND open <> '0'

-- name: next_end_open
SELECT min(until) FROM message_grant WHERE scope = ?1 AND open <> '0' AND queue NOT IN (SELECT value FROM json_each(?2))

-- name: next_ready
SELECT min(ready_at) FROM message_failed WHERE scope = ? AND ready_at IS NOT NULL

-- name: next_ready_open
SELECT min(ready_at) FROM message_failed
WHERE scope = ?1 AND ready_at IS NOT NULL AND queue NOT IN (SELECT value FROM json_each(?2))

-- name: due
SELECT {failed_columns} FROM message_failed WHERE scope = ? AND ready_at <= ? ORDER BY ready_at LIMIT ?

-- name: due_open
SELECT {failed_columns} FROM message_failed
WHERE scope = ?1 AND ready_at <= ?3 AND queue NOT IN (SELECT value FROM json_each(?2)) ORDER BY ready_at LIMIT ?4

-- name: failed
SELECT {failed_columns} FROM message_failed WHERE scope = ? AND queue = ? AND offset = ?

-- name: failed_of_queue
SELECT offset FROM message_failed WHERE scope = ? AND queue = ?

-- name: any_failed
SELECT EXISTS (SELECT 1 FROM message_failed WHERE scope = ? AND queue = ? AND offset >= ? AND offset < ?)

-- name: all_failed
SELECT {failed_columns} FROM message_failed WHERE scope = ?

-- name: dying
SELECT {failed_columns} FROM message_failed INDEXED BY failed_for_good WHERE scope = ? AND dying = 1

-- name: fail
INSERT INTO message_failed (scope, queue, offset, epoch, delivery, ready_at, dying, first_at, last_at, reason, lapsed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT DO UPDATE SET epoch = ?4, delivery = ?5, ready_at = ?6, dying = ?7, last_at = ?9,
    reason = coalesce(?10, reason), lapsed = ?11

-- name: regrant
UPDATE message_failed SET ready_at = NULL, epoch = ?1, delivery = ?2, lapsed = 0,
    first_at = CASE ?2 WHEN 1 THEN ?3 ELSE first_at END
WHERE scope = ?4 AND queue = ?5 AND offset = ?6

-- name: doom
UPDATE message_failed SET ready_at = NULL, dying = 1 WHERE scope = ? AND queue = ? AND offset = ?

-- name: unfail
DELETE FROM message_failed WHERE scope = ? AND queue = ? AND offset = ?

-- name: order
INSERT INTO message_ordered (scope, queue, offset, key) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: is_behind
SELECT EXISTS (SELECT 1 FROM message_ordered WHERE scope = ? AND queue = ? AND key = ? AND offset < ?)

-- name: leave_order
DELETE FROM message_ordered WHERE scope = ? AND queue = ? AND offset = ? RETURNING key

-- name: next_of_key
SELECT min(offset) FROM message_ordered WHERE scope = ? AND queue = ? AND key = ?

-- name: let_go
UPDATE message_failed SET ready_at = ? WHERE scope = ? AND queue = ? AND offset = ? AND ready_at IS NULL AND delivery = 0

-- name: clear_grants
UPDATE message_grant SET open = '0', ended_at = ? WHERE scope = ? AND queue = ? AND open <> '0'

-- name: clear_failed
DELETE FROM message_failed WHERE scope = ? AND queue = ?

-- name: clear_order
DELETE FROM message_ordered WHERE scope = ? AND queue = ?

-- name: clear_order_from
DELETE FROM message_ordered WHERE scope = ? AND queue = ? AND offset >= ?

-- name: forget_grants
DELETE FROM message_grant WHERE scope = ?1 AND epoch IN (
    SELECT epoch FROM message_grant WHERE scope = ?1 AND epoch <= ?2 AND open = '0' AND ended_at < ?3 LIMIT ?4)
