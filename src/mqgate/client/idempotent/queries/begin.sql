-- Claim a message that is neither done nor claimed by another process.
INSERT INTO mqgate_processed (consumer, message_id, token, claimed_until)
VALUES (:consumer, :message_id, :token, {now} + :lease)
ON CONFLICT (consumer, message_id) DO UPDATE
SET token = excluded.token, claimed_until = excluded.claimed_until
WHERE mqgate_processed.done_at IS NULL AND mqgate_processed.claimed_until <= {now}
RETURNING token
