-- name: find
SELECT digest, answer FROM idempotency WHERE topic = ? AND key = ? AND at > ?

-- name: claim
INSERT INTO idempotency (topic, key, digest, id, at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO UPDATE SET digest = ?3, id = ?4, answer = NULL, at = ?5

-- name: complete
UPDATE idempotency SET answer = ? WHERE topic = ? AND key = ?

-- name: release
DELETE FROM idempotency WHERE topic = ? AND key = ? AND answer IS NULL

-- name: forget_topic
DELETE FROM idempotency WHERE topic = ?

-- name: forget
DELETE FROM idempotency WHERE (topic, key) IN (SELECT topic, key FROM idempotency WHERE at <= ? LIMIT ?)
