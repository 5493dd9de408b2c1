-- Return whether a message is done, and for how long it is claimed.
SELECT CASE WHEN done_at IS NULL THEN 0 ELSE 1 END, claimed_until - {now}
FROM mqgate_processed
WHERE consumer = :consumer AND message_id = :message_id
