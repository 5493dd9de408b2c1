-- Numbers of a checkpoint only grow, and the newest is never forgotten.
SELECT 1 FROM stats_applied WHERE pipeline = ? AND run = ? AND batch >= ? LIMIT 1
