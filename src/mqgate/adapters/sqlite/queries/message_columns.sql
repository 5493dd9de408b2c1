-- Parts of the statement that reads a page of columns. The requested columns decide which parts are joined.
-- Each column is one concatenated value. Texts: the number of values that are not null (NULL: all), then the texts,
-- separated by U+0002, with U+0001 for null. Bodies: their lengths, then the bodies without separators.

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
