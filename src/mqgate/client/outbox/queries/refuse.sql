-- Keep a row that the gateway will never accept, with its reason.
UPDATE mqgate_outbox SET refused = :refused WHERE number = :number
