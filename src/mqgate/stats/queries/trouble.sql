-- Quarantined batches and late events since an instant.
SELECT (SELECT count(*) FROM stats_quarantine WHERE at >= ?), (SELECT coalesce(sum(n), 0) FROM stats_late WHERE at >= ?)
