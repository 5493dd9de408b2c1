-- name: add
INSERT INTO application (id, version, state, subject, applicant, next_at, body)
VALUES (%(id)s, %(version)s, %(state)s, %(subject)s, %(applicant)s, %(next_at)s, %(body)s::json)
ON CONFLICT (subject) WHERE subject IS NOT NULL DO NOTHING RETURNING number

-- name: change
UPDATE application SET version = %(version)s, state = %(state)s, subject = %(subject)s, next_at = %(next_at)s,
    body = %(body)s::json
WHERE id = %(id)s AND version = %(version)s - 1 RETURNING number

-- name: get
SELECT body::text FROM application WHERE id = %(id)s

-- name: list
SELECT number, body::text FROM application
WHERE number < %(before)s AND (%(state)s::text IS NULL OR state = %(state)s)
    AND (%(applicant)s::text IS NULL OR applicant = %(applicant)s)
ORDER BY number DESC LIMIT %(most)s

-- name: due
SELECT body::text FROM application WHERE state = 'approved' AND next_at <= %(at)s ORDER BY next_at LIMIT %(most)s
