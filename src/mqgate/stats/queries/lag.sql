-- Lag per minute, and its growth since the previous sample (at most ten minutes earlier).
WITH points AS (
    SELECT at, topic, "group", client, max(sampled_at) AS sampled_at, sum(ready) AS ready, sum(leased) AS leased,
           sum(waiting) AS waiting, min(oldest_at) AS oldest_at
    FROM stats_lag_minute
    WHERE at >= ? AND at < ? AND (? = '' OR topic = ?) AND (? = '' OR "group" = ?) AND (? = '' OR client = ?)
    GROUP BY at, topic, "group", client
), grown AS (
    SELECT at, topic, "group", client, sampled_at, ready, leased, waiting, oldest_at,
           ready + leased + waiting - lag(ready + leased + waiting) OVER each_group AS growth,
           sampled_at - lag(sampled_at) OVER each_group AS elapsed
    FROM points
    WINDOW each_group AS (PARTITION BY topic, "group", client ORDER BY at)
)
SELECT * FROM grown WHERE at >= ? ORDER BY at, topic, "group", client LIMIT ? OFFSET ?
