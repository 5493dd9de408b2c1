-- name: scopes
SELECT scope, group_name, client, incarnation, last_seen, epoch, in_flight FROM lease_scope

-- name: last_scope
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'lease_scope'

-- name: set_scope
INSERT OR REPLACE INTO lease_scope (scope, group_name, client, incarnation, last_seen, epoch, in_flight)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: tokens
SELECT group_name, tokens, at FROM lease_tokens

-- name: set_tokens
INSERT OR REPLACE INTO lease_tokens (group_name, tokens, at) VALUES (?, ?, ?)

-- name: drop_tokens
DELETE FROM lease_tokens WHERE group_name = ?

-- name: see_client
INSERT INTO lease_client (group_name, client, address, first_seen, last_seen) VALUES (?1, ?2, ?3, ?4, ?4)
ON CONFLICT DO UPDATE SET address = ?3, last_seen = ?4

-- name: trim_clients
DELETE FROM lease_client WHERE group_name = ?1
    AND (SELECT count(*) FROM lease_client WHERE group_name = ?1) > 2 * ?2
    AND client IN (SELECT client FROM lease_client WHERE group_name = ?1 ORDER BY last_seen DESC LIMIT -1 OFFSET ?2)

-- name: clients
SELECT client, address, first_seen, last_seen FROM lease_client WHERE group_name = ? ORDER BY last_seen DESC LIMIT ?

-- name: forget_clients
DELETE FROM lease_client WHERE last_seen < ?

-- name: drop_clients
DELETE FROM lease_client WHERE group_name = ?

-- name: held_queues
SELECT scopes.client, leases.queue, leases.last_client FROM queue_lease leases
JOIN lease_scope scopes ON scopes.scope = leases.scope
WHERE scopes.group_name = ?1 AND leases.held = 1 AND leases.leased_until > ?2

-- name: committed
SELECT queue, committed FROM queue_lease WHERE scope = ?1
UNION ALL SELECT queue, committed FROM message_queue WHERE scope = ?1

-- name: drop_all_of_scope
DELETE FROM lease_scope WHERE scope = ?

-- name: drop_all_queue_leases
DELETE FROM queue_lease WHERE scope = ?

-- name: drop_all_settled
DELETE FROM lease_settled WHERE scope = ?

-- name: drop_all_message_queues
DELETE FROM message_queue WHERE scope = ?

-- name: drop_all_grants
DELETE FROM message_grant WHERE scope = ?

-- name: drop_all_failed
DELETE FROM message_failed WHERE scope = ?

-- name: drop_all_ordered
DELETE FROM message_ordered WHERE scope = ?
