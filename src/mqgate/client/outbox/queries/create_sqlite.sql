-- Create the outbox. AUTOINCREMENT: a number is never used again.
CREATE TABLE IF NOT EXISTS mqgate_outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id VARCHAR(32) NOT NULL UNIQUE,
    topic VARCHAR(100) NOT NULL,
    message_key VARCHAR(1000),
    envelope TEXT NOT NULL,
    claimed_until DOUBLE PRECISION NOT NULL DEFAULT 0,
    refused TEXT
)
