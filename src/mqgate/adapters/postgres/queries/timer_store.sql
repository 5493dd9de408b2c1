-- name: add
INSERT INTO timer (id, topic, due, key, tag, properties, slot, body, producer)
SELECT * FROM unnest(
    %(ids)s::text[], %(topics)s::text[], %(dues)s::timestamptz[], %(keys)s::text[], %(tags)s::text[],
    %(properties)s::text[], %(slots)s::bigint[], %(bodies)s::bytea[], %(producers)s::text[])

-- name: claim
WITH fresh AS MATERIALIZED (
    SELECT number FROM timer WHERE state = 'scheduled' AND failed_at IS NULL AND due <= {now}
    ORDER BY due, number LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
), again AS MATERIALIZED (
    SELECT number FROM timer WHERE state = 'scheduled' AND failed_at IS NOT NULL
    ORDER BY failed_at, number LIMIT %(limit)s::bigint - (SELECT count(*) FROM fresh) FOR UPDATE SKIP LOCKED
)
UPDATE timer SET state = 'claimed', owner = %(owner)s
WHERE number = ANY (ARRAY(SELECT number FROM fresh UNION ALL SELECT number FROM again))
RETURNING {columns}

-- name: outlook
SELECT
    {now},
    (SELECT min(due) FROM (
        (SELECT due FROM timer WHERE state = 'scheduled' AND failed_at IS NULL ORDER BY due, number LIMIT 1)
        UNION ALL
        (SELECT due FROM timer WHERE state = 'scheduled' AND failed_at IS NOT NULL ORDER BY failed_at, number LIMIT 1)
    ) AS earliest),
    EXISTS (SELECT FROM timer WHERE state = 'claimed' AND owner NOT IN ({live}))

-- name: unfinished
WITH abandoned AS MATERIALIZED (
    SELECT number FROM timer WHERE state = 'claimed' AND (owner = %(owner)s OR owner NOT IN ({live}))
    FOR UPDATE SKIP LOCKED
)
UPDATE timer SET owner = %(owner)s WHERE number = ANY (ARRAY(SELECT number FROM abandoned))
RETURNING {columns}

-- name: finish
UPDATE timer SET state = 'delivered', owner = NULL, decided_at = {now}, body = NULL, properties = NULL
WHERE number = ANY (%(numbers)s::bigint[]) AND state IN ('claimed', 'scheduled')

-- name: release
UPDATE timer SET state = 'scheduled', owner = NULL, failed_at = {now}
WHERE number = ANY (%(numbers)s::bigint[]) AND state = 'claimed' AND owner = %(owner)s

-- name: get
SELECT {columns} FROM timer WHERE id = %(id)s ORDER BY number DESC LIMIT 1

-- name: list
SELECT number, id, topic, due, state, key, tag, properties, slot, NULL::bytea, producer FROM (
    (SELECT * FROM timer
    WHERE state = 'scheduled' AND failed_at IS NULL AND due >= %(since)s AND due < %(until)s
        AND (due, number) > (%(due)s, %(number)s)
    ORDER BY due, number LIMIT %(limit)s)
    UNION ALL
    (SELECT * FROM timer
    WHERE state = 'scheduled' AND failed_at IS NOT NULL AND due >= %(since)s AND due < %(until)s
        AND (due, number) > (%(due)s, %(number)s)
    ORDER BY due, number LIMIT %(limit)s)
) AS timer ORDER BY due, number LIMIT %(limit)s

-- name: list_topic
SELECT number, id, topic, due, state, key, tag, properties, slot, NULL::bytea, producer FROM timer
WHERE state = 'scheduled' AND topic = %(topic)s AND due >= %(since)s AND due < %(until)s
    AND (due, number) > (%(due)s, %(number)s)
ORDER BY due, number LIMIT %(limit)s

-- name: list_producer
SELECT number, id, topic, due, state, key, tag, properties, slot, NULL::bytea, producer FROM timer
WHERE state = 'scheduled' AND producer = %(producer)s AND (%(topic)s::text IS NULL OR topic = %(topic)s)
    AND due >= %(since)s AND due < %(until)s AND (due, number) > (%(due)s, %(number)s)
ORDER BY due, number LIMIT %(limit)s

-- name: retime
WITH found AS MATERIALIZED (
    SELECT number, state FROM timer WHERE id = %(id)s ORDER BY number DESC LIMIT 1 FOR UPDATE
), changed AS (
    UPDATE timer SET due = %(due)s, failed_at = NULL FROM found
    WHERE timer.number = found.number AND found.state = 'scheduled'
)
SELECT state FROM found

-- name: cancel
WITH found AS MATERIALIZED (
    SELECT number, state FROM timer WHERE id = %(id)s ORDER BY number DESC LIMIT 1 FOR UPDATE
), changed AS (
    UPDATE timer SET state = 'cancelled', decided_at = {now}, body = NULL, properties = NULL FROM found
    WHERE timer.number = found.number AND found.state = 'scheduled'
)
SELECT state FROM found

-- name: cancel_scheduled
UPDATE timer SET state = 'cancelled', decided_at = {now}, body = NULL, properties = NULL
WHERE number = ANY (ARRAY(
    SELECT number FROM timer WHERE state = 'scheduled' AND topic = %(topic)s
    ORDER BY due, number LIMIT %(limit)s FOR UPDATE))
RETURNING number

-- name: cancel_claimed
UPDATE timer SET state = 'cancelled', owner = NULL, decided_at = {now}, body = NULL, properties = NULL
WHERE number = ANY (ARRAY(
    SELECT number FROM timer WHERE state = 'claimed' AND topic = %(topic)s ORDER BY owner, number LIMIT %(limit)s FOR UPDATE))
RETURNING number

-- name: forget
DELETE FROM timer WHERE number = ANY (ARRAY(
    SELECT number FROM timer WHERE state IN ('delivered', 'cancelled') AND decided_at < {now} - %(kept)s
    ORDER BY decided_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED))
RETURNING number
