-- Delete the records of messages that were done long ago.
DELETE FROM mqgate_processed WHERE done_at < {now} - :keep
RETURNING message_id
