-- Give up a claim whose handler failed.
DELETE FROM mqgate_processed
WHERE consumer = :consumer AND message_id = :message_id AND token = :token AND done_at IS NULL
