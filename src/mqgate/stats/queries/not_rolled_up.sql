-- The oldest minute that was touched since the last roll-up, and the newest there is.
SELECT min(oldest), (SELECT max(at) FROM stats_traffic_minute) FROM stats_applied WHERE is_rolled_up = 0
