-- Stored batches of a gateway incarnation, from one sequence number to another.
SELECT sequence FROM stats_event_batches WHERE gateway = ? AND incarnation = ? AND sequence BETWEEN ? AND ?
