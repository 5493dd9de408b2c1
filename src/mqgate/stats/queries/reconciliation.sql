SELECT * FROM stats_reconciliation
WHERE at >= ? AND at < ? AND (? = '' OR topic = ?) AND (? = '' OR "group" = ?) AND (? = '' OR state = ?)
ORDER BY at, topic, "group", client
LIMIT ? OFFSET ?
