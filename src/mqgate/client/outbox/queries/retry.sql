-- Let the refused rows be published again.
UPDATE mqgate_outbox SET refused = NULL, claimed_until = 0 WHERE refused IS NOT NULL
