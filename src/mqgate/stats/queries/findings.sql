SELECT * FROM stats_findings
WHERE at >= ? AND at < ? AND (? = '' OR topic = ?) AND (? = '' OR "group" = ?) AND (? = '' OR finding = ?)
ORDER BY at, topic, "group", client, queue, "offset", finding
LIMIT ? OFFSET ?
