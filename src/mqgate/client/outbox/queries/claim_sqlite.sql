-- Claim the oldest rows that no relay holds, at most the first one of each key. One statement has the write lock.
UPDATE mqgate_outbox
SET claimed_until = {now} + :lease
WHERE number IN (
    SELECT candidate.number
    FROM mqgate_outbox AS candidate
    WHERE
        candidate.refused IS NULL
        AND candidate.claimed_until <= {now}
        AND NOT EXISTS (
            SELECT 1
            FROM mqgate_outbox AS earlier
            WHERE
                earlier.topic = candidate.topic
                AND earlier.message_key = candidate.message_key
                AND earlier.number < candidate.number
        )
    ORDER BY candidate.number
    LIMIT :batch
)
RETURNING number, id, topic, envelope
