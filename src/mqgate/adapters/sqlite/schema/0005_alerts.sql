-- Alarms: what operators set, the lease of the evaluator, alarms, notifications, and reports of gateways.
CREATE TABLE alarm_setting (
    kind TEXT NOT NULL, name TEXT NOT NULL, entry BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE alarm_lease (
    id INTEGER PRIMARY KEY, holder TEXT NOT NULL, term INTEGER NOT NULL, ends_at INTEGER NOT NULL
);
CREATE TABLE alarm (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, is_open INTEGER NOT NULL,
    changed_at INTEGER NOT NULL, entry BLOB NOT NULL
);
CREATE INDEX alarm_open ON alarm (number) WHERE is_open;
CREATE TABLE alarm_notification (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at INTEGER NOT NULL, entry BLOB NOT NULL
);
CREATE TABLE alarm_delivery (
    notification TEXT NOT NULL, channel TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL,
    due INTEGER NOT NULL, error TEXT,
    PRIMARY KEY (notification, channel)
) WITHOUT ROWID;
CREATE INDEX alarm_delivery_pending ON alarm_delivery (due) WHERE state = 'pending';
CREATE TABLE gateway_report (gateway TEXT PRIMARY KEY, at INTEGER NOT NULL, entry BLOB NOT NULL) WITHOUT ROWID;
