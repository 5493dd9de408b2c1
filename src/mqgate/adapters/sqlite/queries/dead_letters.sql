-- name: record
INSERT INTO dead_letter (group_name, client, id, topic, queue, offset, key, tag, properties, body, stored_at,
    deliveries, first_at, last_at, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET deliveries = excluded.deliveries, first_at = excluded.first_at, last_at = excluded.last_at,
    reason = excluded.reason

-- name: list
SELECT {columns} FROM dead_letter
WHERE group_name = ?1 AND number > ?2 AND (?3 IS NULL OR key = ?3) AND last_at >= ?4 AND last_at < ?5
ORDER BY number LIMIT ?6

-- name: get
SELECT {columns} FROM dead_letter WHERE group_name = ? AND id = ? ORDER BY number DESC

-- name: remove
DELETE FROM dead_letter WHERE number = ?

-- name: forget
DELETE FROM dead_letter WHERE group_name = ?
