-- Row of a queue and grant in message mode: packed formats and readable line.
--
--   row     min, max, bounds_reported_at, boot, committed; cursor: next offset never granted; revoked_epoch: unsettled
--           grants up to it are gone (seek); placing: ordered groups, epoch of the grant whose pull is not reported
--           yet; served_at, last_consumed_at, expired, last_client
--   grant   a range of offsets from `start` on; states: one per message, see below; open: number of open messages;
--           again: a message of it failed or was extended after its lease ended; ends: lease ends of single messages
--           that were extended, in MessagePack
local ROW = '<dddddddddddI4c0'
local LINE = 'min=%d max=%d committed=%d cursor=%d last_consumed_at=%d last_client=%s'
local GRANT = '<I8I4I6I6I4I1I6I4I4I8I2c0I4c0I2c0I2c0I2c0I4c0'
-- State of a message in a grant: open, acked, nacked, lease ended, or not given (released or filtered out).
local OPEN, ACKED, NACKED, ENDED, NOT_GIVEN = string.byte('oane.', 1, 5)
-- Old grants are deleted once in this many grants.
local FORGET_INTERVAL = 64
