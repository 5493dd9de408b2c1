-- Deliveries, redeliveries, dead letters, polls and empty polls.
SELECT at, topic, "group", sum(delivered), sum(redelivered), sum(dead), sum(polls), sum(empty_polls)
FROM (
    SELECT at, topic, "group", CASE WHEN kind = 'delivered' THEN n ELSE 0 END AS delivered, redelivered,
           CASE WHEN kind = 'dead' THEN n ELSE 0 END AS dead, 0 AS polls, 0 AS empty_polls
    FROM stats_traffic_{step}
    WHERE "group" <> ''
    UNION ALL
    SELECT at, topic, "group", 0, 0, 0, n, CASE WHEN outcome IN ('empty', 'timed_out') THEN n ELSE 0 END
    FROM stats_polls_{step}
) AS both_tables
WHERE at >= ? AND at < ? AND (? = '' OR topic = ?) AND (? = '' OR "group" = ?)
GROUP BY at, topic, "group"
ORDER BY at, topic, "group"
LIMIT ? OFFSET ?
