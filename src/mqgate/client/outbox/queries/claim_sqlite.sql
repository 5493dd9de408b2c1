-- Claim the oldest rows that no relay holds, at most the first one of each key. One statement has the write lock.
UPDATE mqgate_outbox
SET claimed_until = (julianday('now') - 2440587.5) * 86400.0 + :lease
WHERE number IN (
    SELECT candidate.number
    FROM mqgate_outbox AS candidate
    WHERE
        candidate.refused IS NULL
        AND candidate.claimed_until <= (julianday('now') - 2440587.5) * 86400.0
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
