-- Reads the next due time of each topic, which is when a message of it next needs attention. The
-- time is NULL for a topic where no message does so within $5 ms, and for one that is paused or
-- does not exist, of which it says so. Of each topic nothing is read before its scan start, which
-- is in $6, and nothing after $7, unless that is NULL. It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT clock.micros, n.name, t.number IS NULL,
       CASE WHEN t.keyed THEN :keyed_due: ELSE
       (SELECT m.visible_at FROM punctual.message AS m
        WHERE m.topic = t.number AND m.visible_at >= n.scan_start AND m.visible_at <= n.until
        ORDER BY m.topic, m.visible_at, m.id LIMIT 1) END
FROM clock CROSS JOIN LATERAL (SELECT u.*, least(clock.micros / 1000 + $5::bigint, $7::bigint) AS until FROM unnest($4::text[], $6::bigint[]) AS u (name, scan_start)) AS n
     LEFT JOIN LATERAL (SELECT t.number, t.keyed FROM punctual.topic AS t WHERE t.name = n.name AND NOT t.delivery_paused OFFSET 0) AS t ON true
