-- name: claim
-- Keys are locked in sorted order, so that concurrent claims cannot deadlock.
INSERT INTO idempotency AS stored (topic, key, digest, id, at, owner, sent_by)
SELECT topic, key, digest, id, this.instant, %(owner)s, this.instant + %(sending)s
FROM unnest(%(topics)s::text[], %(keys)s::text[], %(digests)s::text[], %(ids)s::text[])
    AS claimed (topic, key, digest, id), (SELECT {now} AS instant) AS this
ORDER BY topic, key
ON CONFLICT (topic, key) DO UPDATE SET
    digest = excluded.digest, id = excluded.id, answer = NULL, at = excluded.at, owner = excluded.owner,
    sent_by = excluded.sent_by,
    uses = CASE WHEN stored.at <= excluded.at - %(window)s THEN 1 ELSE stored.uses + 1 END
WHERE stored.at <= excluded.at - %(window)s
    OR (stored.answer IS NULL AND stored.digest = excluded.digest
        AND (stored.owner = excluded.owner OR stored.sent_by <= excluded.at OR stored.owner NOT IN ({live})))
RETURNING topic, key, uses

-- name: find
SELECT topic, key, digest, answer
FROM idempotency JOIN unnest(%(topics)s::text[], %(keys)s::text[]) AS claimed (topic, key) USING (topic, key)

-- name: complete
WITH done AS MATERIALIZED (
    SELECT topic, key, given.answer
    FROM idempotency JOIN unnest(%(topics)s::text[], %(keys)s::text[], %(digests)s::text[], %(answers)s::text[])
        AS given (topic, key, digest, answer) USING (topic, key, digest)
    ORDER BY topic, key FOR UPDATE OF idempotency
)
UPDATE idempotency AS stored SET answer = done.answer FROM done WHERE stored.topic = done.topic AND stored.key = done.key

-- name: release
WITH unsent AS MATERIALIZED (
    SELECT topic, key
    FROM idempotency JOIN unnest(%(topics)s::text[], %(keys)s::text[]) AS given (topic, key) USING (topic, key)
    WHERE answer IS NULL AND owner = %(owner)s
    ORDER BY topic, key FOR UPDATE OF idempotency
)
DELETE FROM idempotency AS stored USING unsent WHERE stored.topic = unsent.topic AND stored.key = unsent.key

-- name: forget_topic
DELETE FROM idempotency WHERE (topic, key) IN (
    SELECT topic, key FROM idempotency WHERE topic = %(topic)s LIMIT %(limit)s)
RETURNING key

-- name: forget
DELETE FROM idempotency WHERE (topic, key) IN (
    SELECT topic, key FROM idempotency WHERE at <= {now} - %(window)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING key
