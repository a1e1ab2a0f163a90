-- Reads of each topic its settings, how many messages are ready, up to $4, and the due time of the
-- first of them in the order of claims. It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT clock.micros, t.name, t.settings, ready.n, earliest.due
FROM clock LEFT JOIN punctual.topic AS t ON true
     LEFT JOIN LATERAL (
         SELECT count(*) AS n
         FROM (SELECT 1 FROM punctual.message AS m WHERE m.topic = t.number AND m.visible_at <= clock.micros / 1000
               ORDER BY m.topic, m.visible_at, m.id LIMIT $4::bigint) AS head
     ) AS ready ON true
     LEFT JOIN LATERAL (
         SELECT CASE WHEN t.keyed THEN :keyed_due: ELSE (
             SELECT m.due FROM punctual.message AS m WHERE m.topic = t.number AND m.visible_at <= clock.micros / 1000
             ORDER BY m.topic, m.visible_at, m.id LIMIT 1) END AS due
         FROM (SELECT -9223372036854775808 AS scan_start, clock.micros / 1000 AS until) AS n
     ) AS earliest ON true
ORDER BY t.name
