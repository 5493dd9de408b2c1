-- Whether a batch applied since one instant changed minutes before another instant.
SELECT 1 FROM stats_applied WHERE at >= ? AND oldest < ? LIMIT 1
