-- Reads which topics have something that is past its retention. Of each topic it reads, for each
-- kind, the row whose retention ends first. It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT t.number FROM punctual.topic AS t CROSS JOIN clock
WHERE (SELECT m.forget_at FROM punctual.message AS m
       WHERE m.topic = t.number AND m.forget_at IS NOT NULL ORDER BY m.topic, m.forget_at LIMIT 1) <= clock.micros / 1000
   OR (SELECT s.forget_at FROM punctual.finished AS s
       WHERE s.topic = t.number AND s.forget_at > 0 ORDER BY s.topic, s.forget_at LIMIT 1) <= clock.micros / 1000
   OR t.dead_retention > 0
      AND (SELECT m.died_at FROM punctual.message AS m
           WHERE m.topic = t.number AND m.died_at IS NOT NULL ORDER BY m.topic, m.died_at, m.id LIMIT 1) <= clock.micros / 1000 - t.dead_retention
