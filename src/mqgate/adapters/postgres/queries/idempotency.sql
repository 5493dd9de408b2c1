-- name: claim
-- Keys are locked in sorted order, so that concurrent claims cannot deadlock.
INSERT INTO idempotency AS kept (topic, key, digest, id, at, owner, sent_by)
SELECT topic, key, digest, id, this.instant, %(owner)s, this.instant + %(sending)s
FROM unnest(%(topics)s::text[], %(keys)s::text[], %(digests)s::text[], %(ids)s::text[])
    AS asked (topic, key, digest, id), (SELECT {now} AS instant) AS this
ORDER BY topic, key
ON CONFLICT (topic, key) DO UPDATE SET
    digest = excluded.digest, id = excluded.id, answer = NULL, at = excluded.at, owner = excluded.owner,
    sent_by = excluded.sent_by,
    uses = CASE WHEN kept.at <= excluded.at - %(window)s THEN 1 ELSE kept.uses + 1 END
WHERE kept.at <= excluded.at - %(window)s
    OR (kept.answer IS NULL AND kept.digest = excluded.digest
        AND (kept.owner = excluded.owner OR kept.sent_by <= excluded.at OR kept.owner NOT IN ({live})))
RETURNING topic, key, uses

-- name: find
SELECT topic, key, digest, answer
FROM idempotency JOIN unnest(%(topics)s::text[], %(keys)s::text[]) AS asked (topic, key) USING (topic, key)

-- name: complete
WITH done AS MATERIALIZED (
    SELECT topic, key, told.answer
    FROM idempotency JOIN unnest(%(topics)s::text[], %(keys)s::text[], %(digests)s::text[], %(answers)s::text[])
        AS told (topic, key, digest, answer) USING (topic, key, digest)
    ORDER BY topic, key FOR UPDATE OF idempotency
)
UPDATE idempotency AS kept SET answer = done.answer FROM done WHERE kept.topic = done.topic AND kept.key = done.key

-- name: release
WITH unsent AS MATERIALIZED (
    SELECT topic, key
    FROM idempotency JOIN unnest(%(topics)s::text[], %(keys)s::text[]) AS told (topic, key) USING (topic, key)
    WHERE answer IS NULL AND owner = %(owner)s
    ORDER BY topic, key FOR UPDATE OF idempotency
)
DELETE FROM idempotency AS kept USING unsent WHERE kept.topic = unsent.topic AND kept.key = unsent.key

-- name: forget_topic
DELETE FROM idempotency WHERE (topic, key) IN (
    SELECT topic, key FROM idempotency WHERE topic = %(topic)s LIMIT %(most)s)
RETURNING key

-- name: forget
DELETE FROM idempotency WHERE (topic, key) IN (
    SELECT topic, key FROM idempotency WHERE at <= {now} - %(window)s LIMIT %(most)s FOR UPDATE SKIP LOCKED)
RETURNING key
