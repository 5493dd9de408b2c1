-- Delete a row whose message is stored.
DELETE FROM mqgate_outbox WHERE number = :number
