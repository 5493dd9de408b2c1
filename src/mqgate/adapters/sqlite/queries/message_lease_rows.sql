-- name: queues
SELECT {queue_columns} FROM message_queue WHERE scope = ?

-- name: set_queue
INSERT OR REPLACE INTO message_queue (scope, {queue_columns}) VALUES ({queue_values})

-- name: active_grants
SELECT {grant_columns} FROM message_grant INDEXED BY active_grants
WHERE scope = ? AND (open <> '0' OR attempt IS NOT NULL)

-- name: grant
SELECT {grant_columns} FROM message_grant WHERE scope = ? AND epoch = ?

-- name: set_grant
INSERT OR REPLACE INTO message_grant (scope, {grant_columns}, first_open) VALUES ({grant_values}, ?)

-- name: forget_grants
DELETE FROM message_grant WHERE scope = ?1 AND epoch IN (
    SELECT epoch FROM message_grant
    WHERE scope = ?1 AND epoch <= (SELECT epoch FROM lease_scope WHERE scope = ?1) - ?2 AND open = '0' AND ended_at < ?3
    LIMIT ?4)
RETURNING epoch

-- name: failed
SELECT queue, offset, {failed_columns} FROM message_failed WHERE scope = ?

-- name: set_failed
INSERT OR REPLACE INTO message_failed (scope, queue, offset, {failed_columns}) VALUES (?, ?, ?, {failed_values})

-- name: remove_failed
DELETE FROM message_failed WHERE scope = ? AND queue = ? AND offset = ?

-- name: keys
SELECT queue, offset, key FROM message_ordered WHERE scope = ?

-- name: set_key
INSERT OR REPLACE INTO message_ordered (scope, queue, offset, key) VALUES (?, ?, ?, ?)

-- name: remove_key
DELETE FROM message_ordered WHERE scope = ? AND queue = ? AND offset = ?

-- name: held
SELECT {held_columns} FROM lease_scope scopes
JOIN message_grant grants INDEXED BY active_grants ON grants.scope = scopes.scope
WHERE scopes.group_name = ? AND (open <> '0' OR attempt IS NOT NULL)
