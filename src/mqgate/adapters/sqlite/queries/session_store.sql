-- name: add
INSERT INTO session (digest, account, created_at, seen_at, address, client) VALUES (?, ?, ?, ?, ?, ?)

-- name: trim
DELETE FROM session WHERE account = ?1 AND digest NOT IN (
    SELECT digest FROM session WHERE account = ?1 ORDER BY created_at DESC, digest LIMIT ?2)

-- name: find
SELECT digest, account, created_at, seen_at, address, client FROM session WHERE digest = ?

-- name: touch
UPDATE session SET seen_at = max(seen_at, ?2) WHERE digest = ?1

-- name: remove
DELETE FROM session WHERE account = ?1 AND (?2 IS NULL OR digest = ?2) AND (?3 IS NULL OR digest <> ?3)

-- name: of
SELECT digest, account, created_at, seen_at, address, client FROM session WHERE account = ?
ORDER BY created_at DESC, digest

-- name: attempts
SELECT count, at FROM sign_in_slot WHERE slot = ?

-- name: count
INSERT INTO sign_in_slot (slot, count, at) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET count = ?2, at = ?3

-- name: clear
DELETE FROM sign_in_slot WHERE slot = ?

-- name: undo
UPDATE sign_in_slot SET count = count - 1 WHERE slot = ? AND count > 0

-- name: tidy_sessions
DELETE FROM session WHERE created_at < ? OR seen_at < ?

-- name: tidy_attempts
DELETE FROM sign_in_slot WHERE at < ?
