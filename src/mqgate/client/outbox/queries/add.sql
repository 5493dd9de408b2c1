-- Add a message in the transaction of the caller.
INSERT INTO mqgate_outbox (id, topic, message_key, envelope) VALUES (:id, :topic, :message_key, :envelope)
