-- A bit for each time that the newest batch, or the grant, was served to an answer that nobody took.
ALTER TABLE queue_lease ADD COLUMN returned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE message_grant ADD COLUMN returned INTEGER NOT NULL DEFAULT 0;
