SELECT * FROM stats_stuck
WHERE (? = '' OR topic = ?) AND (? = '' OR "group" = ?)
ORDER BY topic, "group", queue, "offset"
LIMIT ? OFFSET ?
