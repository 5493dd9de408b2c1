-- Parts of one statement that makes a page of columns; which of them are put together is the reader's choice of columns.
-- A column is one long value, so that no row is ever touched by Python: texts with U+0002 between them and U+0001 for
-- null, after how many are not null (NULL where all are); bodies end to end, after their lengths.

-- name: page
FROM message NOT INDEXED WHERE position BETWEEN ? AND ?

-- name: extent
count(*), max(position)

-- name: id
NULL, CAST(group_concat(id, char(2)) AS BLOB)

-- name: key
count(key), CAST(group_concat(coalesce(key, char(1)), char(2)) AS BLOB)

-- name: tag
count(tag), CAST(group_concat(coalesce(tag, char(1)), char(2)) AS BLOB)

-- name: properties
count(properties), CAST(group_concat(coalesce(properties, char(1)), char(2)) AS BLOB)

-- name: storedAt
NULL, CAST(group_concat(stored_at, char(2)) AS BLOB)

-- name: body
CAST(group_concat(octet_length(body), char(2)) AS BLOB), CAST(group_concat(body, '') AS BLOB)

-- name: key_size
coalesce(octet_length(key), 0)

-- name: tag_size
coalesce(octet_length(tag), 0)

-- name: properties_size
coalesce(octet_length(properties), 0)

-- name: body_size
octet_length(body)
