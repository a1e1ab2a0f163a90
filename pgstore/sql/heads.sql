-- Reads when each of several topics next needs attention; NULL for one that is empty, paused or not there.
-- It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT clock.micros, n.name,
       (SELECT m.visible_at FROM punctual.message AS m
        WHERE m.topic = t.number AND m.visible_at IS NOT NULL
        ORDER BY m.topic, m.visible_at, m.id LIMIT 1)
FROM clock CROSS JOIN unnest($4::text[]) AS n (name)
     LEFT JOIN punctual.topic AS t ON t.name = n.name AND NOT t.delivery_paused
