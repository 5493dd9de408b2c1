-- Alarms: what operators set, the lease of the evaluator, alarms, notifications, and reports of gateways.
CREATE TABLE alarm_setting (kind text NOT NULL, name text NOT NULL, entry json NOT NULL, PRIMARY KEY (kind, name));
CREATE TABLE alarm_lease (
    id integer PRIMARY KEY, holder text NOT NULL, term bigint NOT NULL, ends_at timestamptz NOT NULL
);
CREATE TABLE alarm (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE, is_open boolean NOT NULL,
    changed_at timestamptz NOT NULL, entry json NOT NULL
);
CREATE INDEX alarm_open ON alarm (number) WHERE is_open;
CREATE TABLE alarm_notification (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE, at timestamptz NOT NULL,
    entry json NOT NULL
);
CREATE TABLE alarm_delivery (
    notification text NOT NULL, channel text NOT NULL, state text NOT NULL, attempts integer NOT NULL,
    due timestamptz NOT NULL, error text,
    PRIMARY KEY (notification, channel)
);
CREATE INDEX alarm_delivery_pending ON alarm_delivery (due) WHERE state = 'pending';
CREATE TABLE gateway_report (gateway text PRIMARY KEY, at timestamptz NOT NULL, entry json NOT NULL);
