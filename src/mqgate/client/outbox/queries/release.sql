-- Give a row back, for the next attempt.
UPDATE mqgate_outbox SET claimed_until = 0 WHERE number = :number
