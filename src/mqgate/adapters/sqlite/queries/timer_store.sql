-- name: add
INSERT INTO timer (id, topic, due, key, tag, properties, slot, body, producer)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: claim
UPDATE timer SET state = 'claimed' WHERE number IN (
    SELECT number FROM timer WHERE state = 'scheduled' AND due <= ? ORDER BY due LIMIT ?)
RETURNING {columns}

-- name: next_due
SELECT min(due) FROM timer WHERE state = 'scheduled'

-- name: unfinished
SELECT {columns} FROM timer WHERE state = 'claimed' ORDER BY number

-- name: finish
UPDATE timer SET state = 'delivered', decided_at = ?, body = NULL, properties = NULL WHERE number = ?

-- name: release
UPDATE timer SET state = 'scheduled' WHERE number = ?

-- name: get
SELECT {columns} FROM timer WHERE id = ? ORDER BY number DESC LIMIT 1

-- name: list
SELECT number, id, topic, due, state, key, tag, properties, slot, NULL, producer FROM timer INDEXED BY timer_by_due
WHERE state = 'scheduled' AND (?1 IS NULL OR topic = ?1) AND due >= ?2 AND due < ?3
    AND (due, number) > (?4, ?5) AND (?7 IS NULL OR producer = ?7)
ORDER BY due, number LIMIT ?6

-- name: state
SELECT number, state FROM timer WHERE id = ? ORDER BY number DESC LIMIT 1

-- name: retime
UPDATE timer SET due = ? WHERE number = ?

-- name: cancel
UPDATE timer SET state = 'cancelled', decided_at = ?, body = NULL, properties = NULL WHERE number = ?

-- name: cancel_all
UPDATE timer SET state = 'cancelled', decided_at = ?, body = NULL, properties = NULL
WHERE topic = ? AND state IN ('scheduled', 'claimed')

-- name: forget
DELETE FROM timer WHERE number IN (
    SELECT number FROM timer WHERE state IN ('delivered', 'cancelled') AND decided_at < ? LIMIT ?)
