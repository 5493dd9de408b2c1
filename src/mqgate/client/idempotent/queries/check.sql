-- Fail if the table is missing.
SELECT count(*) FROM mqgate_processed WHERE claimed_until < 0
