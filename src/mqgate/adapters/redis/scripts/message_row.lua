-- A queue's row and a grant in message mode: how they are packed and shown.
--
--   a queue's row   min, max, committed, cursor (the next to be granted), swept (grants up to it are gone: seek), placing
--                   (ordered groups: the grant whose keys are not known yet), served_at, ...
--   a grant         a range of a queue from `start` on, with a letter for each message, of which so many are open; again:
--                   one of them came back once; ends: when single ones end, if not with the others, in MessagePack
local ROW = '<dddddddddddI4c0'
local LINE = 'min=%d max=%d committed=%d cursor=%d last_consumed_at=%d last_client=%s'
local GRANT = '<I8I4I6I6I4I1I6I4I4I8I2c0I4c0I2c0I2c0I2c0I4c0'
-- A message of a grant: open, acked, nacked, ended by itself, or not given (went back, or not wanted).
local OPEN, ACKED, NACKED, ENDED, NOT_GIVEN = string.byte('oane.', 1, 5)
-- Every so many grants the oldest are forgotten.
local FORGETTING = 64
