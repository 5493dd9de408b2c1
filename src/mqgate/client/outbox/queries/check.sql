-- Fail if the table is missing.
SELECT count(*) FROM mqgate_outbox WHERE number < 0
