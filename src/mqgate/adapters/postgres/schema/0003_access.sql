-- Sessions of people who signed in. The token itself is not stored.
CREATE TABLE session (
    digest text PRIMARY KEY, account text NOT NULL, created_at timestamptz NOT NULL, seen_at timestamptz NOT NULL,
    address text NOT NULL, client text NOT NULL
);
CREATE INDEX session_by_account ON session (account, created_at);

-- Attempts to sign in, by a hash of the account or the address: at most 65,536 rows of each.
CREATE TABLE sign_in_slot (slot text PRIMARY KEY, count integer NOT NULL, at timestamptz NOT NULL);

-- Who scheduled a message: the key of a producer changes its own only.
ALTER TABLE timer ADD COLUMN producer text;
CREATE INDEX timer_by_producer ON timer (producer, due, number) WHERE state = 'scheduled' AND producer IS NOT NULL;

-- What people ask for. The columns are copies of members that queries need.
CREATE TABLE application (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE, version integer NOT NULL,
    state text NOT NULL, subject text, applicant text NOT NULL, next_at timestamptz, body json NOT NULL
);
CREATE UNIQUE INDEX application_by_subject ON application (subject) WHERE subject IS NOT NULL;
CREATE INDEX application_by_state ON application (state, number);
CREATE INDEX application_by_applicant ON application (applicant, number);
CREATE INDEX application_due ON application (next_at) WHERE state = 'approved';
