-- Which batches of a gateway's incarnation are known, from one number to another.
SELECT sequence FROM stats_event_batches WHERE gateway = ? AND incarnation = ? AND sequence BETWEEN ? AND ?
