-- name: all_queues
SELECT topic, queue_id, number, min_offset, next_offset FROM queue ORDER BY topic, queue_id

-- name: add_queue
INSERT INTO queue (topic, queue_id) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: queue_numbers
SELECT queue_id, number, min_offset, next_offset FROM queue WHERE topic = ? ORDER BY queue_id

-- name: drop_messages
DELETE FROM message WHERE position BETWEEN ? AND ?

-- name: drop_queues
DELETE FROM queue WHERE topic = ?

-- name: unrecorded
SELECT max(position), sum(length(body) + coalesce(length(properties), 0)) FROM message WHERE position BETWEEN ? AND ?

-- name: record_end
UPDATE queue SET next_offset = ?, bytes = bytes + ? WHERE number = ?

-- name: read
SELECT position, id, key, tag, properties, stored_at, body FROM message WHERE position BETWEEN ? AND ? ORDER BY position LIMIT ?

-- name: stored_at
SELECT stored_at FROM message WHERE position = ?

-- name: by_id
SELECT position, id, key, tag, properties, stored_at, body FROM message
WHERE id = ? AND position >> 40 IN (SELECT number FROM queue WHERE topic = ?) ORDER BY position LIMIT 1

-- name: by_key
SELECT position, id, key, tag, properties, stored_at, body FROM message
WHERE key = ? AND position > ? AND position >> 40 IN (SELECT number FROM queue WHERE topic = ?)
AND stored_at >= ? AND stored_at < ? ORDER BY position LIMIT ?

-- name: oldest_bytes
SELECT position, length(body) + coalesce(length(properties), 0) FROM message WHERE position BETWEEN ? AND ? ORDER BY position LIMIT ?

-- name: raise_min
UPDATE queue SET min_offset = ?, bytes = bytes - ? WHERE number = ?

-- name: topic_bytes
SELECT number, bytes, min_offset, next_offset FROM queue WHERE topic = ?
