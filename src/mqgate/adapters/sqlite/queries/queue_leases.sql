-- name: add_queue
INSERT INTO queue_lease (scope, queue, head_min, head_max, committed, waiting_since) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: see_head
UPDATE queue_lease SET head_min = ?, head_max = ?, waiting_since = CASE WHEN backlog > 0 THEN waiting_since ELSE ? END
WHERE scope = ? AND queue = ? RETURNING committed

-- name: look
SELECT EXISTS (SELECT 1 FROM queue_lease WHERE scope = ?1 AND held = 1 AND free_at <= ?2),
    EXISTS (SELECT 1 FROM queue_lease INDEXED BY exhausted_queues WHERE scope = ?1 AND exhausted > 0)

-- name: free_ended
UPDATE queue_lease SET held = 0 WHERE scope = ? AND held = 1 AND free_at <= ?

-- name: queue
SELECT {columns} FROM queue_lease WHERE scope = ? AND queue = ?

-- name: queues
SELECT {columns} FROM queue_lease WHERE scope = ?

-- name: exhausted
SELECT {columns} FROM queue_lease INDEXED BY exhausted_queues WHERE scope = ? AND exhausted > 0 AND held = 0

-- name: by_attempt
SELECT {columns} FROM queue_lease INDEXED BY lease_by_attempt WHERE scope = ? AND attempt = ? AND leased_until > ?

-- name: oldest_free
SELECT {columns} FROM queue_lease INDEXED BY free_by_age
WHERE scope = ? AND held = 0 AND exhausted = 0 AND backlog > 0 ORDER BY waiting_since, queue LIMIT 1

-- name: oldest_free_open
SELECT {columns} FROM queue_lease INDEXED BY free_by_age
WHERE scope = ? AND held = 0 AND exhausted = 0 AND backlog > 0 AND queue NOT IN (SELECT value FROM json_each(?))
ORDER BY waiting_since, queue LIMIT 1

-- name: fullest_free
SELECT {columns} FROM queue_lease
WHERE scope = ? AND held = 0 AND exhausted = 0 AND backlog > 0 ORDER BY backlog DESC, last_consumed_at, queue LIMIT 1

-- name: fullest_free_open
SELECT {columns} FROM queue_lease
WHERE scope = ? AND held = 0 AND exhausted = 0 AND backlog > 0 AND queue NOT IN (SELECT value FROM json_each(?))
ORDER BY backlog DESC, last_consumed_at, queue LIMIT 1

-- name: all_free
SELECT {columns} FROM queue_lease WHERE scope = ? AND held = 0 AND exhausted = 0 AND backlog > 0

-- name: emptied
SELECT {columns} FROM queue_lease WHERE scope = ? AND held = 0 AND exhausted = 0 AND backlog <= 0 AND committed < head_min

-- name: skip
UPDATE queue_lease SET expired = expired + head_min - committed, committed = head_min, attempts = 0, first_at = 0, reason = NULL
WHERE scope = ? AND queue = ?

-- name: has_backlog
SELECT EXISTS (SELECT 1 FROM queue_lease WHERE scope = ? AND backlog > 0)

-- name: next_free
SELECT min(free_at) FROM queue_lease WHERE scope = ? AND held = 1

-- name: next_free_open
SELECT min(free_at) FROM queue_lease WHERE scope = ? AND held = 1 AND queue NOT IN (SELECT value FROM json_each(?))

-- name: leave_attempt
UPDATE queue_lease SET attempt = NULL WHERE scope = ? AND attempt = ? AND queue <> ?

-- name: grant
UPDATE queue_lease SET committed = ?, epoch = epoch + 1 + leap, leap = 0, batch_next = ?, granted_at = ?, leased_until = ?, held = 1,
    free_at = ?, attempt = ?, attempt_shape = ?, serves = 1, returned = 0, attempts = ?, exhausted = ?, first_at = ?, waiting_since = ?,
    last_client = ?, expired = expired + ?
WHERE scope = ? AND queue = ?

-- name: commit
UPDATE queue_lease SET committed = ?, leased_until = ?, held = 0, attempt = NULL, serves = 0, attempts = 0, exhausted = 0,
    first_at = 0, reason = NULL, last_consumed_at = ?
WHERE scope = ? AND queue = ?

-- name: release
UPDATE queue_lease SET leased_until = ?, held = ?, free_at = ?, attempt = NULL, serves = 0, reason = ?
WHERE scope = ? AND queue = ?

-- name: serve_again
UPDATE queue_lease SET serves = serves + 1 WHERE scope = ? AND queue = ?

-- name: renew
UPDATE queue_lease SET leased_until = ?, held = 1, free_at = ? WHERE scope = ? AND queue = ?

-- name: shorten
UPDATE queue_lease SET batch_next = ? WHERE scope = ? AND queue = ?

-- name: return
UPDATE queue_lease SET returned = ? WHERE scope = ? AND queue = ?

-- name: take_back
UPDATE queue_lease SET leased_until = ?, held = 0, attempt = NULL, attempts = attempts - 1, exhausted = 0, serves = 0
WHERE scope = ? AND queue = ?

-- name: exhaust
UPDATE queue_lease SET exhausted = 1 WHERE scope = ? AND queue = ?

-- name: relieve
UPDATE queue_lease SET exhausted = 0, attempts = ? WHERE scope = ? AND queue = ?

-- name: doom
UPDATE queue_lease SET exhausted = 2, epoch = epoch + 1 + leap, leap = 0, attempt = NULL, reason = ? WHERE scope = ? AND queue = ?

-- name: move
UPDATE queue_lease SET committed = ?, epoch = epoch + 1 + leap, swept_epoch = epoch + 1 + leap, leap = 0, leased_until = ?, held = 0,
    attempt = NULL, serves = 0, attempts = 0, exhausted = 0, first_at = 0, reason = NULL, waiting_since = ?
WHERE scope = ? AND queue = ?

-- name: spent_by
SELECT verb FROM lease_settled WHERE scope = ? AND queue = ? AND epoch = ?

-- name: spend
INSERT INTO lease_settled (scope, queue, epoch, verb, at) VALUES (?, ?, ?, ?, ?)

-- name: forgettable
SELECT id, queue, epoch FROM lease_settled
WHERE scope = ?1 AND at < ?2
    AND id <= (SELECT id FROM lease_settled WHERE scope = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?3)
LIMIT ?4

-- name: forget_settled
DELETE FROM lease_settled WHERE id = ?

-- name: sweep
UPDATE queue_lease SET swept_epoch = max(swept_epoch, ?) WHERE scope = ? AND queue = ?

-- name: expire
UPDATE queue_lease SET expired = expired + 1 WHERE scope = ? AND queue = ?
