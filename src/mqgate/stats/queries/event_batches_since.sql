-- The batches that gateways stored since an instant.
SELECT gateway, incarnation, sequence, at, dropped, is_last FROM stats_event_batches WHERE at >= ?
