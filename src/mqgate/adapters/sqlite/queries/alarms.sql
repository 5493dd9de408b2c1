-- name: settings
SELECT kind, entry FROM alarm_setting

-- name: save_setting
INSERT INTO alarm_setting (kind, name, entry) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET entry = ?3

-- name: remove_setting
DELETE FROM alarm_setting WHERE kind = ? AND name = ?

-- name: acquire
INSERT INTO alarm_lease (id, holder, term, ends_at) VALUES (1, ?1, 1, ?2 + ?3)
ON CONFLICT DO UPDATE SET term = term + (holder <> ?1), holder = ?1, ends_at = ?2 + ?3
WHERE holder = ?1 OR ends_at <= ?2
RETURNING term

-- name: release
UPDATE alarm_lease SET ends_at = 0 WHERE holder = ?

-- name: holds
SELECT 1 FROM alarm_lease WHERE holder = ? AND term = ?

-- name: open_alarms
SELECT entry FROM alarm WHERE is_open ORDER BY number

-- name: pending_deliveries
SELECT n.entry, d.channel, d.state, d.attempts, d.due, d.error
FROM alarm_delivery d JOIN alarm_notification n ON n.id = d.notification
WHERE d.state = 'pending' ORDER BY n.number, d.channel

-- name: save_alarm
INSERT INTO alarm (id, is_open, changed_at, entry) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (id) DO UPDATE SET is_open = ?2, changed_at = ?3, entry = ?4

-- name: drop_alarm
DELETE FROM alarm WHERE id = ?

-- name: save_notification
INSERT INTO alarm_notification (id, at, entry) VALUES (?, ?, ?) ON CONFLICT DO NOTHING

-- name: save_delivery
INSERT INTO alarm_delivery (notification, channel, state, attempts, due, error) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT DO UPDATE SET state = ?3, attempts = ?4, due = ?5, error = ?6

-- name: alarms
SELECT number, entry FROM alarm WHERE number < ? ORDER BY number DESC LIMIT ?

-- name: notifications
SELECT number, entry FROM alarm_notification WHERE number < ? ORDER BY number DESC LIMIT ?

-- name: channel_states
SELECT channel, sum(state = 'pending'), sum(state = 'failed'), max(CASE WHEN state = 'sent' THEN due END),
    (SELECT error FROM alarm_delivery e WHERE e.channel = d.channel AND e.state <> 'sent' AND e.error IS NOT NULL
     ORDER BY e.due DESC LIMIT 1)
FROM alarm_delivery d GROUP BY channel ORDER BY channel

-- name: tidy_alarms
DELETE FROM alarm WHERE NOT is_open AND changed_at < ?

-- name: tidy_notifications
DELETE FROM alarm_notification WHERE at < ?
AND id NOT IN (SELECT notification FROM alarm_delivery WHERE state = 'pending')

-- name: tidy_deliveries
DELETE FROM alarm_delivery WHERE state <> 'pending' AND notification NOT IN (SELECT id FROM alarm_notification)

-- name: add_report
INSERT INTO gateway_report (gateway, at, entry) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET at = ?2, entry = ?3

-- name: reports
SELECT entry FROM gateway_report WHERE at >= ? ORDER BY gateway

-- name: forget_reports
DELETE FROM gateway_report WHERE at < ?
