-- Reads message $5 of topic $4, unless it is forgotten. It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT clock.micros, :info:
FROM clock CROSS JOIN punctual.topic AS t JOIN punctual.message AS m ON m.topic = t.number
WHERE t.name = $4::text AND m.id = $5::text
  AND (m.visible_at IS NOT NULL OR t.dead_retention = 0 AND m.died_at IS NOT NULL OR m.died_at + t.dead_retention > clock.micros / 1000)
