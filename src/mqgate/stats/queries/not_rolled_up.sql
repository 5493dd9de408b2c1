-- The oldest minute that was changed since the last roll-up.
SELECT min(oldest) FROM stats_applied WHERE is_rolled_up = 0
