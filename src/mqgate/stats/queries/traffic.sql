-- Traffic by any of its names. {step}: minute, hour or day; {by}: the columns asked for.
SELECT at, {by}, sum(n), sum(bytes), sum(redelivered)
FROM stats_traffic_{step}
WHERE at >= ? AND at < ?
  AND (? = '' OR topic = ?) AND (? = '' OR "group" = ?) AND (? = '' OR producer = ?) AND (? = '' OR client = ?)
  AND (? = '' OR kind = ?)
GROUP BY at, {by}
ORDER BY at, {by}
LIMIT ? OFFSET ?
