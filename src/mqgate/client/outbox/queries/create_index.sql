-- Find the earlier rows of a key.
CREATE INDEX IF NOT EXISTS mqgate_outbox_key ON mqgate_outbox (topic, message_key, number)
