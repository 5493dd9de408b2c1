-- name: scope
SELECT scope, incarnation, last_seen, epoch, in_flight FROM lease_scope WHERE group_name = ? AND client = ?

-- name: add_scope
INSERT INTO lease_scope (group_name, client, incarnation, last_seen) VALUES (?, ?, ?, ?) RETURNING scope

-- name: touch_scope
UPDATE lease_scope SET last_seen = ? WHERE scope = ?

-- name: count_scopes
SELECT count(*) FROM lease_scope WHERE group_name = ?

-- name: idle_scopes
SELECT scope FROM lease_scope WHERE group_name = ? AND client <> '' AND last_seen <= ?

-- name: scopes_of_group
SELECT scope FROM lease_scope WHERE group_name = ?

-- name: all_scopes
SELECT scope, group_name, client, last_seen FROM lease_scope

-- name: drop_clients
DELETE FROM lease_client WHERE group_name = ?

-- name: drop_tokens
DELETE FROM lease_tokens WHERE group_name = ?

-- name: tokens
SELECT tokens, at FROM lease_tokens WHERE group_name = ?

-- name: set_tokens
INSERT INTO lease_tokens (group_name, tokens, at) VALUES (?1, ?2, ?3)
ON CONFLICT DO UPDATE SET tokens = ?2, at = ?3

-- name: see_client
INSERT INTO lease_client (group_name, client, address, first_seen, last_seen) VALUES (?1, ?2, ?3, ?4, ?4)
ON CONFLICT DO UPDATE SET address = ?3, last_seen = ?4

-- name: count_clients
SELECT count(*) FROM lease_client WHERE group_name = ?

-- name: trim_clients
DELETE FROM lease_client WHERE group_name = ?1 AND client IN (
    SELECT client FROM lease_client WHERE group_name = ?1 ORDER BY last_seen DESC LIMIT -1 OFFSET ?2)

-- name: clients
SELECT client, address, first_seen, last_seen FROM lease_client WHERE group_name = ? ORDER BY last_seen DESC LIMIT ?

-- name: held_queues
SELECT scopes.client, leases.queue, leases.last_client FROM queue_lease leases
JOIN lease_scope scopes ON scopes.scope = leases.scope
WHERE scopes.group_name = ?1 AND leases.held = 1 AND leases.leased_until > ?2

-- name: committed
SELECT queue, committed FROM queue_lease WHERE scope = ?1
UNION ALL SELECT queue, committed FROM message_queue WHERE scope = ?1

-- name: forget_clients
DELETE FROM lease_client WHERE last_seen < ?

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
