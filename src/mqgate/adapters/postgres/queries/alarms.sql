-- name: settings
SELECT kind, entry::text FROM alarm_setting

-- name: save_setting
INSERT INTO alarm_setting (kind, name, entry) VALUES (%(kind)s, %(name)s, %(entry)s::json)
ON CONFLICT (kind, name) DO UPDATE SET entry = excluded.entry

-- name: remove_setting
DELETE FROM alarm_setting WHERE kind = %(kind)s AND name = %(name)s

-- name: acquire
INSERT INTO alarm_lease AS held (id, holder, term, ends_at) VALUES (1, %(holder)s, 1, {now} + %(ttl)s)
ON CONFLICT (id) DO UPDATE SET
    term = held.term + (held.holder <> excluded.holder)::int, holder = excluded.holder, ends_at = excluded.ends_at
WHERE held.holder = excluded.holder OR held.ends_at <= {now}
RETURNING term

-- name: release
UPDATE alarm_lease SET ends_at = '-infinity' WHERE holder = %(holder)s

-- name: holds
SELECT 1 FROM alarm_lease WHERE holder = %(holder)s AND term = %(term)s FOR SHARE

-- name: open_alarms
SELECT entry::text FROM alarm WHERE is_open ORDER BY number

-- name: pending_deliveries
SELECT n.entry::text, d.channel, d.state, d.attempts, d.due, d.error
FROM alarm_delivery d JOIN alarm_notification n ON n.id = d.notification
WHERE d.state = 'pending' ORDER BY n.number, d.channel

-- name: save_alarms
INSERT INTO alarm (id, is_open, changed_at, entry)
SELECT id, is_open, {now}, entry::json FROM unnest(%(ids)s::text[], %(open)s::boolean[], %(entries)s::text[])
    WITH ORDINALITY AS row (id, is_open, entry, place) ORDER BY place
ON CONFLICT (id) DO UPDATE SET is_open = excluded.is_open, changed_at = excluded.changed_at, entry = excluded.entry

-- name: drop_alarms
DELETE FROM alarm WHERE id = ANY(%(ids)s)

-- name: save_notification
INSERT INTO alarm_notification (id, at, entry) VALUES (%(id)s, %(at)s, %(entry)s::json) ON CONFLICT (id) DO NOTHING

-- name: save_delivery
INSERT INTO alarm_delivery (notification, channel, state, attempts, due, error)
VALUES (%(notification)s, %(channel)s, %(state)s, %(attempts)s, %(due)s, %(error)s)
ON CONFLICT (notification, channel) DO UPDATE
SET state = excluded.state, attempts = excluded.attempts, due = excluded.due, error = excluded.error

-- name: alarms
SELECT number, entry::text FROM alarm WHERE number < %(before)s ORDER BY number DESC LIMIT %(limit)s

-- name: notifications
SELECT number, entry::text FROM alarm_notification WHERE number < %(before)s ORDER BY number DESC LIMIT %(limit)s

-- name: channel_states
SELECT channel, count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'failed'),
    max(due) FILTER (WHERE state = 'sent'),
    (SELECT error FROM alarm_delivery e WHERE e.channel = d.channel AND e.state <> 'sent' AND e.error IS NOT NULL
     ORDER BY e.due DESC LIMIT 1)
FROM alarm_delivery d GROUP BY channel ORDER BY channel

-- name: tidy_alarms
DELETE FROM alarm WHERE NOT is_open AND changed_at < {now} - %(kept)s

-- name: tidy_notifications
DELETE FROM alarm_notification WHERE at < {now} - %(kept)s
AND id NOT IN (SELECT notification FROM alarm_delivery WHERE state = 'pending')

-- name: tidy_deliveries
DELETE FROM alarm_delivery WHERE state <> 'pending' AND notification NOT IN (SELECT id FROM alarm_notification)

-- name: add_report
INSERT INTO gateway_report (gateway, at, entry) VALUES (%(gateway)s, {now}, %(entry)s::json)
ON CONFLICT (gateway) DO UPDATE SET at = excluded.at, entry = excluded.entry

-- name: reports
WITH forgotten AS (DELETE FROM gateway_report WHERE at < {now} - interval '1 day')
SELECT entry::text FROM gateway_report WHERE at >= {now} - %(max_age)s ORDER BY gateway
