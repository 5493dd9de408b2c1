-- Latency buckets of one page of (at, topic, group, measure). {step}: minute, hour or day.
WITH page AS (
    SELECT DISTINCT at, topic, "group", measure
    FROM stats_latency_{step}
    WHERE at >= ? AND at < ? AND (? = '' OR topic = ?) AND (? = '' OR "group" = ?) AND (? = '' OR measure = ?)
    ORDER BY at, topic, "group", measure
    LIMIT ? OFFSET ?
)
SELECT at, topic, "group", measure, bucket, n
FROM stats_latency_{step} JOIN page USING (at, topic, "group", measure)
ORDER BY at, topic, "group", measure, bucket
