-- The batches of every incarnation that told anything since an instant, with what the one before had told.
SELECT gateway, incarnation, sequence, at, dropped, is_last,
       lag(sequence) OVER each_one AS sequence_before, lag(at) OVER each_one AS at_before,
       lag(dropped) OVER each_one AS dropped_before, lead(sequence) OVER each_one AS sequence_after
FROM stats_event_batches
WHERE at >= ?
WINDOW each_one AS (PARTITION BY gateway, incarnation ORDER BY sequence)
ORDER BY gateway, incarnation, sequence
