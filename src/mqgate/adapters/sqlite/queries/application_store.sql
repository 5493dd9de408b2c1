-- name: add
INSERT INTO application (id, version, state, subject, applicant, next_at, body) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (subject) WHERE subject IS NOT NULL DO NOTHING RETURNING number

-- name: change
UPDATE application SET version = ?2, state = ?3, subject = ?4, applicant = ?5, next_at = ?6, body = ?7
WHERE id = ?1 AND version = ?2 - 1 RETURNING number

-- name: get
SELECT body FROM application WHERE id = ?

-- name: list
SELECT number, body FROM application WHERE number < ?1 AND (?2 IS NULL OR state = ?2) AND (?3 IS NULL OR applicant = ?3)
ORDER BY number DESC LIMIT ?4

-- name: due
SELECT body FROM application WHERE state = 'approved' AND next_at <= ? ORDER BY next_at LIMIT ?
