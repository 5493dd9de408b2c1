-- The lease state of active scopes is in memory, and queues and messages are chosen there: these indexes have no reader.
DROP INDEX IF EXISTS free_by_age;
DROP INDEX IF EXISTS free_by_backlog;
DROP INDEX IF EXISTS held_by_end;
DROP INDEX IF EXISTS exhausted_queues;
DROP INDEX IF EXISTS lease_by_attempt;
DROP INDEX IF EXISTS fresh_by_turn;
DROP INDEX IF EXISTS overtaken_queues;
DROP INDEX IF EXISTS open_by_end;
DROP INDEX IF EXISTS open_by_first;
DROP INDEX IF EXISTS grant_by_attempt;
DROP INDEX IF EXISTS failed_by_time;
DROP INDEX IF EXISTS failed_for_good;
DROP INDEX IF EXISTS ordered_by_key;
-- The grants that are loaded with a scope. Others are loaded when a receipt names them.
CREATE INDEX active_grants ON message_grant (scope) WHERE open <> '0' OR attempt IS NOT NULL;
