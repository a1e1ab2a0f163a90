-- Reads which topics have something that was kept long enough. It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT t.number FROM punctual.topic AS t CROSS JOIN clock
WHERE EXISTS (SELECT FROM punctual.message AS m WHERE m.topic = t.number AND m.forget_at <= clock.micros / 1000)
   OR t.dead_retention > 0
      AND EXISTS (SELECT FROM punctual.message AS m WHERE m.topic = t.number AND m.died_at <= clock.micros / 1000 - t.dead_retention)
