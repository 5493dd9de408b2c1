-- A queue's row in queue and broadcast mode: how it is packed, shown and listed.
--
--   min, max                  ends, as last told; told_at: when max last was
--   committed                 the first message not consumed
--   locked_until, locked_by   the lock: until when, whose; not granted before free_at (0: not held)
--   last_consumed_at          when committed last moved by an ack
--   epoch                     grants so far
--   ended_by                  how the newest ended: ACKED, NACKED, or 0: not by a settlement, so far
--   swept, forgotten          up to there what nobody settled is gone (seek); all is too old to tell
--   batch_end, granted_at, attempt, shape, serves, returned, nonce   the newest batch; serves 0: it was ended by somebody,
--                             not by itself; returned: a bit for each serve that nobody took; lapsed: so many of the batch
--                             before ended by themselves
--   attempts, exhausted, first_at, reason   grants at this offset; 1: the last one was, 2: it dies
--   waiting_since, expired, boot
--   held_at, aged_at          its entries in those indexes; 0: none
local ROW = '<dddddddddddddddddddddddddI4c0I4c0I4c0I4c0'
local LINE = 'min=%d max=%d committed=%d epoch=%d attempts=%d locked_until=%d last_consumed_at=%d locked_by=%s'
-- In `free`: those that were consumed less recently before the others.
local NAME = '%015d %s'
local ACKED, NACKED, AGEING = 1, 2, 30000
