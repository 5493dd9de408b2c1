-- One row each: the store clock's high-water mark, the registry's version.
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('clock', 0), ('registry_version', 0);
CREATE TABLE note (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE registry (
    kind TEXT NOT NULL, name TEXT NOT NULL, entry BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE TABLE act (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, actor TEXT NOT NULL,
    action TEXT NOT NULL, subject TEXT NOT NULL, reason TEXT, details TEXT NOT NULL
);

CREATE TABLE receipt_key (id INTEGER PRIMARY KEY, secret BLOB NOT NULL, created_at INTEGER NOT NULL);

-- The log. A message's position is its queue's number * 2^40 + its offset: one integer key, rows of a queue side by side.
CREATE TABLE queue (
    number INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, queue_id INTEGER NOT NULL,
    min_offset INTEGER NOT NULL DEFAULT 0, next_offset INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, queue_id)
);
CREATE TABLE message (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL, key TEXT, tag TEXT, properties TEXT,
    stored_at INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE INDEX message_by_id ON message (id);
CREATE INDEX message_by_key ON message (key) WHERE key IS NOT NULL;

-- Leases. A scope is a group, or one client of a broadcast group (client '' otherwise).
CREATE TABLE lease_scope (
    scope INTEGER PRIMARY KEY AUTOINCREMENT, group_name TEXT NOT NULL, client TEXT NOT NULL,
    incarnation TEXT NOT NULL, last_seen INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,            -- message mode: grants so far
    in_flight INTEGER NOT NULL DEFAULT 0,        -- message mode: messages in open grants
    UNIQUE (group_name, client)
);
CREATE TABLE queue_lease (
    scope INTEGER NOT NULL, queue TEXT NOT NULL,
    head_min INTEGER NOT NULL, head_max INTEGER NOT NULL, committed INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,
    leap INTEGER NOT NULL DEFAULT 0,             -- added to the next epoch: after a power cut
    swept_epoch INTEGER NOT NULL DEFAULT 0,      -- leases up to this epoch are gone: seek, or too old to tell
    batch_next INTEGER NOT NULL DEFAULT 0,       -- end of the newest batch
    granted_at INTEGER NOT NULL DEFAULT 0,
    leased_until INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0,             -- 1: not to be granted before free_at
    free_at INTEGER NOT NULL DEFAULT 0,
    attempt TEXT, attempt_shape TEXT,            -- the attemptId of the newest batch, and what it asked for
    serves INTEGER NOT NULL DEFAULT 0,           -- how often the newest batch was served to that attempt
    attempts INTEGER NOT NULL DEFAULT 0,         -- grants at this committed offset
    exhausted INTEGER NOT NULL DEFAULT 0,        -- 1: the last attempt was granted; 2: it failed, the message is dying
    first_at INTEGER NOT NULL DEFAULT 0, reason TEXT,
    waiting_since INTEGER NOT NULL DEFAULT 0,    -- unserved since, while there is backlog
    last_client TEXT, last_consumed_at INTEGER NOT NULL DEFAULT 0,
    expired INTEGER NOT NULL DEFAULT 0,          -- lost to retention so far
    backlog INTEGER GENERATED ALWAYS AS (head_max - max(committed, head_min)) STORED,
    PRIMARY KEY (scope, queue)
) WITHOUT ROWID;
-- Flat cost of choosing, whatever the number of queues: each question is the first entry of an index.
CREATE INDEX free_by_age ON queue_lease (scope, waiting_since) WHERE held = 0 AND exhausted = 0 AND backlog > 0;
CREATE INDEX free_by_backlog ON queue_lease (scope, backlog DESC, last_consumed_at)
    WHERE held = 0 AND exhausted = 0 AND backlog > 0;
CREATE INDEX held_by_end ON queue_lease (scope, free_at) WHERE held = 1;
CREATE INDEX exhausted_queues ON queue_lease (scope) WHERE exhausted > 0;
CREATE INDEX lease_by_attempt ON queue_lease (scope, attempt) WHERE attempt IS NOT NULL;

-- Message mode. The cursor moves at a grant; a grant is a range of a queue with a bit per message. Only what failed (or was
-- given back, or waits for an earlier message of its key) has a row of its own. Committed = the first unsettled.
CREATE TABLE message_queue (
    scope INTEGER NOT NULL, queue TEXT NOT NULL,
    head_min INTEGER NOT NULL, head_max INTEGER NOT NULL, committed INTEGER NOT NULL, cursor INTEGER NOT NULL,
    swept_epoch INTEGER NOT NULL DEFAULT 0,      -- grants up to this one are gone: seek
    placing INTEGER NOT NULL DEFAULT 0,          -- ordered groups: the grant whose keys are not known yet
    served_at INTEGER NOT NULL DEFAULT 0, last_client TEXT, last_consumed_at INTEGER NOT NULL DEFAULT 0,
    expired INTEGER NOT NULL DEFAULT 0,
    fresh INTEGER GENERATED ALWAYS AS (head_max - max(cursor, head_min)) STORED,
    PRIMARY KEY (scope, queue)
) WITHOUT ROWID;
CREATE INDEX fresh_by_turn ON message_queue (scope, served_at) WHERE fresh > 0;

CREATE TABLE message_grant (
    scope INTEGER NOT NULL, epoch INTEGER NOT NULL, queue TEXT NOT NULL,
    start INTEGER NOT NULL, delivery INTEGER NOT NULL, granted_at INTEGER NOT NULL,
    base_until INTEGER NOT NULL, ends TEXT NOT NULL DEFAULT '{}',   -- JSON, bit -> end: messages that were extended
    until INTEGER NOT NULL,                                         -- the earliest end of an open message
    given TEXT NOT NULL, open TEXT NOT NULL, acked TEXT NOT NULL, nacked TEXT NOT NULL,   -- hex, bit n: start + n
    first_open INTEGER NOT NULL, ended_at INTEGER NOT NULL DEFAULT 0,
    attempt TEXT, attempt_shape TEXT, serves INTEGER NOT NULL DEFAULT 1, client TEXT NOT NULL,
    again INTEGER NOT NULL,                      -- 1: its messages have rows in message_failed
    PRIMARY KEY (scope, epoch)
) WITHOUT ROWID;
CREATE INDEX open_by_end ON message_grant (scope, until) WHERE open <> '0';
CREATE INDEX open_by_first ON message_grant (scope, queue, first_open) WHERE open <> '0';
CREATE INDEX grant_by_attempt ON message_grant (scope, attempt) WHERE attempt IS NOT NULL;

CREATE TABLE message_failed (
    scope INTEGER NOT NULL, queue TEXT NOT NULL, offset INTEGER NOT NULL,
    epoch INTEGER NOT NULL, delivery INTEGER NOT NULL,   -- of the newest grant
    ready_at INTEGER,                                    -- NULL: granted now, dying, or behind its key
    dying INTEGER NOT NULL DEFAULT 0,
    first_at INTEGER NOT NULL, last_at INTEGER NOT NULL, reason TEXT,
    PRIMARY KEY (scope, queue, offset)
) WITHOUT ROWID;
CREATE INDEX failed_by_time ON message_failed (scope, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX failed_for_good ON message_failed (scope) WHERE dying = 1;

CREATE TABLE message_ordered (
    scope INTEGER NOT NULL, queue TEXT NOT NULL, offset INTEGER NOT NULL, key TEXT NOT NULL,
    PRIMARY KEY (scope, queue, offset)
) WITHOUT ROWID;
CREATE INDEX ordered_by_key ON message_ordered (scope, queue, key, offset);

-- Which receipts were spent, by which verb: what makes a repeated ack a duplicate.
CREATE TABLE lease_settled (
    id INTEGER PRIMARY KEY, scope INTEGER NOT NULL, queue TEXT NOT NULL, epoch INTEGER NOT NULL,
    verb TEXT NOT NULL, at INTEGER NOT NULL,
    UNIQUE (scope, queue, epoch)
);
CREATE INDEX lease_settled_by_scope ON lease_settled (scope);
CREATE TABLE lease_client (
    group_name TEXT NOT NULL, client TEXT NOT NULL, address TEXT NOT NULL,
    first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL,
    PRIMARY KEY (group_name, client)
) WITHOUT ROWID;
CREATE TABLE lease_tokens (group_name TEXT PRIMARY KEY, tokens REAL NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE dead_letter (
    number INTEGER PRIMARY KEY AUTOINCREMENT, group_name TEXT NOT NULL, client TEXT NOT NULL,
    id TEXT NOT NULL, topic TEXT NOT NULL, queue TEXT NOT NULL, offset INTEGER NOT NULL,
    key TEXT, tag TEXT, properties TEXT, body BLOB NOT NULL, stored_at INTEGER NOT NULL,
    deliveries INTEGER NOT NULL, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL, reason TEXT,
    UNIQUE (group_name, client, topic, queue, offset)
);
CREATE INDEX dead_letter_by_id ON dead_letter (group_name, id);

-- Any-time delay. One index on the due time serves the next due row and the overdue ones.
CREATE TABLE timer (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, topic TEXT NOT NULL, due INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'scheduled',     -- scheduled, claimed (being dispatched), delivered, cancelled
    decided_at INTEGER, key TEXT, tag TEXT, properties TEXT, slot INTEGER, body BLOB
);
CREATE INDEX timer_by_due ON timer (due) WHERE state = 'scheduled';
CREATE INDEX timer_claimed ON timer (number) WHERE state = 'claimed';
CREATE INDEX timer_decided ON timer (decided_at) WHERE state IN ('delivered', 'cancelled');
CREATE INDEX timer_by_id ON timer (id);

CREATE TABLE idempotency (
    topic TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, id TEXT NOT NULL,
    answer TEXT,                                 -- NULL while it is being published
    at INTEGER NOT NULL,
    PRIMARY KEY (topic, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_by_time ON idempotency (at);
