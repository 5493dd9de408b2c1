-- Sessions of people who signed in. The token itself is not stored.
CREATE TABLE session (
    digest TEXT PRIMARY KEY, account TEXT NOT NULL, created_at INTEGER NOT NULL, seen_at INTEGER NOT NULL,
    address TEXT NOT NULL, client TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX session_by_account ON session (account, created_at);

-- Attempts to sign in, by a hash of the account or the address: at most 65,536 rows of each.
CREATE TABLE sign_in_slot (slot TEXT PRIMARY KEY, count INTEGER NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;

-- Who scheduled a message: the key of a producer changes its own only.
ALTER TABLE timer ADD COLUMN producer TEXT;

-- What people ask for. The columns are copies of members that queries need.
CREATE TABLE application (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, state TEXT NOT NULL,
    subject TEXT, applicant TEXT NOT NULL, next_at INTEGER, body BLOB NOT NULL   -- subject: NULL when it is closed
);
CREATE UNIQUE INDEX application_by_subject ON application (subject) WHERE subject IS NOT NULL;
CREATE INDEX application_by_state ON application (state, number);
CREATE INDEX application_by_applicant ON application (applicant, number);
CREATE INDEX application_due ON application (next_at) WHERE state = 'approved';
