-- List the refused rows, oldest first.
SELECT number, id, topic, message_key, refused FROM mqgate_outbox WHERE refused IS NOT NULL ORDER BY number
