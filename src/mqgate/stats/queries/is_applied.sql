-- Batch numbers of a checkpoint only grow, and retention keeps the newest.
SELECT 1 FROM stats_applied WHERE pipeline = ? AND run = ? AND batch >= ? LIMIT 1
