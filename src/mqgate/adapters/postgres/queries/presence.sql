-- name: beat
INSERT INTO gateway (owner, name, seen_at, lease)
VALUES (%(owner)s, %(name)s, {now}, %(lease)s)
ON CONFLICT (owner) DO UPDATE SET seen_at = excluded.seen_at, lease = excluded.lease
RETURNING seen_at

-- name: leave
DELETE FROM gateway WHERE owner = %(owner)s

-- name: forget
DELETE FROM gateway WHERE seen_at < {now} - %(kept)s
