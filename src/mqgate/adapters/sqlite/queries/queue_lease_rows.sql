-- name: queues
SELECT {columns} FROM queue_lease WHERE scope = ?

-- name: set_queue
INSERT OR REPLACE INTO queue_lease (scope, {columns}) VALUES ({values})

-- name: spent_now
SELECT spent.queue, spent.epoch, spent.verb FROM queue_lease leases
JOIN lease_settled spent ON spent.scope = leases.scope AND spent.queue = leases.queue AND spent.epoch = leases.epoch
WHERE leases.scope = ?

-- name: spent_by
SELECT verb FROM lease_settled WHERE scope = ? AND queue = ? AND epoch = ?

-- name: spend
INSERT OR IGNORE INTO lease_settled (scope, queue, epoch, verb, at) VALUES (?, ?, ?, ?, ?)

-- name: forgettable
SELECT id, queue, epoch FROM lease_settled
WHERE scope = ?1 AND at < ?2
    AND id <= (SELECT id FROM lease_settled WHERE scope = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?3)
LIMIT ?4

-- name: forget_spent
DELETE FROM lease_settled WHERE id = ?
