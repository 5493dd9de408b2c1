-- Queues of which retention took messages that were granted before: some may have failed, or wait for their key.
CREATE INDEX overtaken_queues ON message_queue (scope, queue) WHERE committed < head_min AND committed < cursor;
