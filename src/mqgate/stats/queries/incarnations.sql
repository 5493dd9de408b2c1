-- The last batch of each gateway incarnation, and the store time of its first batch.
SELECT gateway, incarnation, sequence, at, dropped, is_last, "rows", started_at
FROM stats_event_batches
JOIN (
    SELECT gateway, incarnation, max(sequence) AS sequence, min(at) AS started_at
    FROM stats_event_batches GROUP BY gateway, incarnation
) AS known USING (gateway, incarnation, sequence)
