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
