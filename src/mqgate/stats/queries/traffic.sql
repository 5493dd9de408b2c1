-- Traffic, grouped by any of its key columns. {step}: minute, hour or day; {by}: the requested columns.
SELECT at, {by}, sum(n), sum(bytes), sum(redelivered)
FROM stats_traffic_{step}
WHERE at >= ? AND at < ?
  AND (? = '' OR topic = ?) AND (? = '' OR "group" = ?) AND (? = '' OR producer = ?) AND (? = '' OR client = ?)
  AND (? = '' OR kind = ?)
GROUP BY at, {by}
ORDER BY at, {by}
LIMIT ? OFFSET ?
