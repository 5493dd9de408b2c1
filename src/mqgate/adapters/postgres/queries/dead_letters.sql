-- name: record
-- Dead letters of a group are inserted one after the other, so that paging by number misses none.
WITH locked AS MATERIALIZED (
    SELECT pg_advisory_xact_lock('dead_letter'::regclass::oid::integer, hashtext(%(group)s))
)
INSERT INTO dead_letter (group_name, client, id, topic, queue, queue_offset, key, tag, properties, body, stored_at,
    deliveries, first_at, last_at, reason)
SELECT %(group)s, %(client)s, %(id)s, %(topic)s, %(queue)s, %(offset)s, %(key)s, %(tag)s, %(properties)s, %(body)s,
    %(stored_at)s, %(deliveries)s, %(first_at)s, %(last_at)s, %(reason)s
FROM locked
ON CONFLICT (group_name, client, topic, queue, queue_offset) DO UPDATE SET deliveries = excluded.deliveries,
    first_at = excluded.first_at, last_at = excluded.last_at, reason = excluded.reason

-- name: list
SELECT {columns} FROM dead_letter
WHERE group_name = %(group)s AND number > %(after)s AND last_at >= %(since)s AND last_at < %(until)s
ORDER BY number LIMIT %(limit)s

-- name: list_key
SELECT {columns} FROM dead_letter
WHERE group_name = %(group)s AND left(key, 100) = left(%(key)s, 100) AND key = %(key)s
    AND number > %(after)s AND last_at >= %(since)s AND last_at < %(until)s
ORDER BY number LIMIT %(limit)s

-- name: get
SELECT {columns} FROM dead_letter WHERE group_name = %(group)s AND id = %(id)s ORDER BY number DESC

-- name: remove
DELETE FROM dead_letter WHERE number = ANY (%(numbers)s::bigint[])

-- name: forget
DELETE FROM dead_letter WHERE number = ANY (ARRAY(
    SELECT number FROM dead_letter WHERE group_name = %(group)s LIMIT %(limit)s))
RETURNING number

-- name: limit_waiting
SELECT set_config('lock_timeout', %(timeout)s, false)

-- name: lock_group
SELECT pg_advisory_lock(hashtextextended(%(name)s, 0))
