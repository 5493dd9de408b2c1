-- 1: the newest delivery failed because its lease ended without a settlement, and nobody was told so yet.
ALTER TABLE message_failed ADD COLUMN lapsed INTEGER NOT NULL DEFAULT 0;
