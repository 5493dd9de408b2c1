-- All instants are of the PostgreSQL clock (clock_timestamp), never of a gateway.

-- Heartbeats: seen_at is updated every second; a gateway is alive until seen_at + lease.
CREATE TABLE gateway (
    owner uuid PRIMARY KEY, name text NOT NULL, seen_at timestamptz NOT NULL, lease interval NOT NULL
);

-- One row. Every change of the registry locks it, so that changes and audit entries have one order.
CREATE TABLE registry_version (version bigint NOT NULL);
INSERT INTO registry_version VALUES (0);
CREATE TABLE registry (kind text NOT NULL, name text NOT NULL, entry json NOT NULL, PRIMARY KEY (kind, name));
CREATE TABLE act (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL, actor text NOT NULL,
    action text NOT NULL, subject text NOT NULL, reason text, details text NOT NULL
);
CREATE TABLE receipt_key (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, secret bytea NOT NULL, created_at timestamptz NOT NULL
);

-- queue_offset, because OFFSET is an SQL keyword.
CREATE TABLE dead_letter (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, group_name text NOT NULL, client text NOT NULL,
    id text NOT NULL, topic text NOT NULL, queue text NOT NULL, queue_offset bigint NOT NULL,
    key text, tag text, properties text, body bytea NOT NULL, stored_at timestamptz NOT NULL,
    deliveries integer NOT NULL, first_at timestamptz NOT NULL, last_at timestamptz NOT NULL, reason text,
    UNIQUE (group_name, client, topic, queue, queue_offset)
);
CREATE INDEX dead_letter_by_id ON dead_letter (group_name, id);
CREATE INDEX dead_letter_by_number ON dead_letter (group_name, number);
-- A key can have 30 KiB, but an index entry at most 2.7 KiB.
CREATE INDEX dead_letter_by_key ON dead_letter (group_name, left(key, 100), number) WHERE key IS NOT NULL;

CREATE TABLE timer (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL, topic text NOT NULL,
    due timestamptz NOT NULL,
    state text NOT NULL DEFAULT 'scheduled',     -- scheduled, claimed (being dispatched), delivered, cancelled
    owner uuid,                                  -- claimed: the gateway that dispatches it
    failed_at timestamptz,                       -- scheduled: when the last dispatch failed
    decided_at timestamptz, key text, tag text, properties text, slot bigint, body bytea
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
-- Every query reads the beginning of an index: next due, failed longest ago, timers of a topic.
CREATE INDEX timer_fresh ON timer (due, number) WHERE state = 'scheduled' AND failed_at IS NULL;
CREATE INDEX timer_failed ON timer (failed_at, number) WHERE state = 'scheduled' AND failed_at IS NOT NULL;
CREATE INDEX timer_by_topic ON timer (topic, due, number) WHERE state = 'scheduled';
CREATE INDEX timer_claimed ON timer (owner, number) WHERE state = 'claimed';
CREATE INDEX timer_decided ON timer (decided_at) WHERE state IN ('delivered', 'cancelled');
CREATE INDEX timer_by_id ON timer (id, number);

CREATE TABLE idempotency (
    topic text NOT NULL, key text NOT NULL, digest text NOT NULL, id text NOT NULL,
    answer text,                                 -- NULL until the publish has a response
    at timestamptz NOT NULL,
    owner uuid NOT NULL,                         -- the gateway that publishes it
    sent_by timestamptz NOT NULL,                -- until then the message may be in transit
    uses bigint NOT NULL DEFAULT 1,              -- number of claims
    PRIMARY KEY (topic, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX idempotency_by_time ON idempotency (at);
