-- Create the records of processed messages.
CREATE TABLE IF NOT EXISTS mqgate_processed (
    consumer VARCHAR(100) NOT NULL,
    message_id VARCHAR(100) NOT NULL,
    token VARCHAR(32) NOT NULL,
    claimed_until DOUBLE PRECISION NOT NULL,
    done_at DOUBLE PRECISION,
    PRIMARY KEY (consumer, message_id)
)
