SELECT 1 FROM stats_applied WHERE pipeline = ? AND run = ? AND batch = ?
