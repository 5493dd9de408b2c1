-- Record that a claimed message is done, unless another process has claimed it since.
UPDATE mqgate_processed SET done_at = {now}
WHERE consumer = :consumer AND message_id = :message_id AND token = :token AND done_at IS NULL
RETURNING token
