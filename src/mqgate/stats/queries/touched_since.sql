-- Batches applied from an instant on that touched minutes before another.
SELECT 1 FROM stats_applied WHERE at >= ? AND oldest < ? LIMIT 1
