-- Row of a queue in queue and broadcast mode: packed format, readable line, index member.
--
--   min, max                  bounds, as last reported; bounds_reported_at: when max was last reported
--   committed                 first offset that is not consumed
--   locked_until, locked_by   end and holder of the newest lease
--   free_at                   the queue is not granted before this instant; 0: free
--   last_consumed_at          when an ack last moved committed
--   epoch                     number of grants so far
--   ended_by                  end of the newest lease: ACKED, NACKED, or 0 if it has not been settled
--   revoked_epoch             unsettled leases up to this epoch are gone (seek)
--   forgotten                 leases up to this epoch are gone: too old
--   batch_end, granted_at, attempt, fingerprint, nonce   the newest batch
--   serves, returned          how often the newest batch was served; a bit per serve that its client did not receive.
--                             serves is 0 after a settlement, release or seek, not after a lease expiry
--   lease_expired             messages of the batch before whose lease expired
--   attempts, first_at, reason   deliveries of the first message, time of the first one, why the last one failed
--   exhausted                 1: the last attempt was granted; 2: it failed, the message is to be dead-lettered
--   waiting_since             since when the queue has messages that are not granted
--   expired                   messages that retention deleted before they were consumed
--   boot                      boot time of the broker
--   held_at, aged_at          scores of the queue in the indexes `held` and `aged`; 0: not in the index
local ROW = '<dddddddddddddddddddddddddI4c0I4c0I4c0I4c0'
local LINE = 'min=%d max=%d committed=%d epoch=%d attempts=%d locked_until=%d last_consumed_at=%d locked_by=%s'
-- Member of `free`: among equal backlogs, the least recently consumed queue sorts first.
local NAME = '%015d %s'
local ACKED, NACKED, MAX_UNSERVED_MS = 1, 2, 30000
