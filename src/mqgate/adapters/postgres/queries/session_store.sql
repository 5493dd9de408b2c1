-- name: add
INSERT INTO session (digest, account, created_at, seen_at, address, client)
VALUES (%(digest)s, %(account)s, %(created_at)s, %(seen_at)s, %(address)s, %(client)s)

-- name: trim
DELETE FROM session WHERE account = %(account)s AND digest NOT IN (
    SELECT digest FROM session WHERE account = %(account)s ORDER BY created_at DESC, digest LIMIT %(keep)s)

-- name: find
SELECT digest, account, created_at, seen_at, address, client FROM session WHERE digest = %(digest)s

-- name: touch
UPDATE session SET seen_at = greatest(seen_at, %(at)s) WHERE digest = %(digest)s

-- name: remove
DELETE FROM session WHERE account = %(account)s AND (%(digest)s::text IS NULL OR digest = %(digest)s)
    AND (%(other_than)s::text IS NULL OR digest <> %(other_than)s)
RETURNING digest

-- name: of
SELECT digest, account, created_at, seen_at, address, client FROM session WHERE account = %(account)s
ORDER BY created_at DESC, digest

-- name: create_slots
INSERT INTO sign_in_slot (slot, count, at) SELECT slot, 0, %(began)s FROM unnest(%(slots)s::text[]) AS given (slot)
ORDER BY slot ON CONFLICT DO NOTHING

-- name: attempts
SELECT slot, count, at FROM sign_in_slot WHERE slot = ANY (%(slots)s::text[]) ORDER BY slot FOR UPDATE

-- name: count
UPDATE sign_in_slot SET count = %(count)s, at = %(at)s WHERE slot = %(slot)s

-- name: clear
DELETE FROM sign_in_slot WHERE slot = %(slot)s

-- name: undo
UPDATE sign_in_slot SET count = count - 1 WHERE slot = %(slot)s AND count > 0

-- name: tidy_sessions
DELETE FROM session WHERE created_at < %(created_before)s OR seen_at < %(seen_before)s

-- name: tidy_attempts
DELETE FROM sign_in_slot WHERE at < %(attempts_before)s
