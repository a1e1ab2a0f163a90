-- Reads when each of several topics next needs attention; NULL for one where nothing does within $5 ms, that is paused or not there.
-- In each it looks at nothing before its time in $6. It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT clock.micros, n.name,
       (SELECT m.visible_at FROM punctual.message AS m
        WHERE m.topic = t.number AND m.visible_at >= n.floor AND m.visible_at <= clock.micros / 1000 + $5::bigint
        ORDER BY m.topic, m.visible_at, m.id LIMIT 1)
FROM clock CROSS JOIN unnest($4::text[], $6::bigint[]) AS n (name, floor)
     LEFT JOIN LATERAL (SELECT t.number FROM punctual.topic AS t WHERE t.name = n.name AND NOT t.delivery_paused OFFSET 0) AS t ON true
