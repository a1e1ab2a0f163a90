-- Reads message $5 of topic $4, unless it is finished, or dead and past its retention. It locks
-- nothing.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (SELECT number, dead_retention FROM punctual.topic WHERE name = $4::text)
SELECT (SELECT micros FROM clock), :info:
FROM punctual.message AS m
WHERE m.topic = (SELECT number FROM t) AND m.id = $5::text
  AND (m.visible_at IS NOT NULL OR (SELECT dead_retention FROM t) = 0 AND m.died_at IS NOT NULL
       OR m.died_at + (SELECT dead_retention FROM t) > (SELECT micros / 1000 FROM clock))
