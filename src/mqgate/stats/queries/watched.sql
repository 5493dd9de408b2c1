-- The first sampled position of each group in each queue.
SELECT topic, "group", client, queue, min(committed) FROM stats_lag_minute GROUP BY topic, "group", client, queue
