-- name: version
SELECT value FROM meta WHERE name = 'registry_version'

-- name: raise_version
UPDATE meta SET value = value + 1 WHERE name = 'registry_version'

-- name: entries
SELECT kind, name, entry FROM registry

-- name: save
INSERT INTO registry (kind, name, entry) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET entry = ?3

-- name: remove
DELETE FROM registry WHERE kind = ? AND name = ?

-- name: record
INSERT INTO act (at, actor, action, subject, reason, details) VALUES (?, ?, ?, ?, ?, ?)

-- name: audit_entries
SELECT id, at, actor, action, subject, reason, details FROM act WHERE id < ? ORDER BY id DESC LIMIT ?

-- name: receipt_keys
SELECT id, secret, created_at FROM receipt_key ORDER BY id

-- name: add_receipt_key
INSERT INTO receipt_key (secret, created_at) VALUES (?, ?) RETURNING id

-- name: drop_receipt_key
DELETE FROM receipt_key WHERE id = ?
