-- name: record
INSERT INTO dead_letter (group_name, client, id, topic, queue, offset, key, tag, properties, body, stored_at,
    deliveries, first_at, last_at, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

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
