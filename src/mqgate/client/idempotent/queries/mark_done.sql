-- Record a message as done in the transaction of its work. Return nothing if it was done before.
INSERT INTO mqgate_processed (consumer, message_id, token, claimed_until, done_at)
VALUES (:consumer, :message_id, :token, 0, {now})
ON CONFLICT (consumer, message_id) DO UPDATE
SET token = excluded.token, done_at = excluded.done_at
WHERE mqgate_processed.done_at IS NULL
RETURNING token
