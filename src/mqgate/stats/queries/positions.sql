SELECT topic, queue, "offset" FROM stats_positions WHERE pipeline = ?
