-- name: limit_waiting
SELECT set_config('lock_timeout', '20s', false), set_config('idle_session_timeout', '60s', false)

-- name: lock_registry
SELECT pg_advisory_lock(hashtextextended('mqgate registry ' || current_schema(), 0))::text

-- name: version
SELECT version FROM registry_version

-- name: load
SELECT version, kind, name, entry::text FROM registry_version LEFT JOIN registry ON true

-- name: save
WITH raised AS (
    UPDATE registry_version SET version = version + 1 WHERE version = %(decided_on)s RETURNING version
), saved AS (
    INSERT INTO registry (kind, name, entry) SELECT %(kind)s, %(name)s, %(entry)s::json FROM raised
    ON CONFLICT (kind, name) DO UPDATE SET entry = excluded.entry
), recorded AS (
    INSERT INTO act (at, actor, action, subject, reason, details)
    SELECT %(at)s, %(actor)s, %(action)s, %(subject)s, %(reason)s, %(details)s FROM raised
)
SELECT version, pg_notify(current_schema(), '')::text FROM raised

-- name: remove
WITH raised AS (
    UPDATE registry_version SET version = version + 1 WHERE version = %(decided_on)s RETURNING version
), removed AS (
    DELETE FROM registry USING raised WHERE kind = %(kind)s AND name = %(name)s
), recorded AS (
    INSERT INTO act (at, actor, action, subject, reason, details)
    SELECT %(at)s, %(actor)s, %(action)s, %(subject)s, %(reason)s, %(details)s FROM raised
)
SELECT version, pg_notify(current_schema(), '')::text FROM raised

-- name: record
WITH locked AS MATERIALIZED (SELECT version FROM registry_version FOR UPDATE)
INSERT INTO act (at, actor, action, subject, reason, details)
SELECT %(at)s, %(actor)s, %(action)s, %(subject)s, %(reason)s, %(details)s FROM locked

-- name: audit_entries
SELECT number, at, actor, action, subject, reason, details FROM act
WHERE number < %(before)s ORDER BY number DESC LIMIT %(limit)s

-- name: lock_receipt_keys
LOCK TABLE receipt_key IN SHARE ROW EXCLUSIVE MODE

-- name: receipt_keys
SELECT now, number, secret, created_at FROM {now} AS clock (now) LEFT JOIN receipt_key ON true ORDER BY number

-- name: add_receipt_key
INSERT INTO receipt_key (secret, created_at) VALUES (%(secret)s, {now})
RETURNING number, secret, created_at, pg_notify(current_schema(), '')::text

-- name: drop_receipt_key
DELETE FROM receipt_key WHERE number = %(number)s
