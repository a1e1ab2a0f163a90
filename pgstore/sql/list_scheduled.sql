-- Reads one page of the scheduled messages of topic $4: from $5, before $6, after $7 with ID $8, up
-- to $9 of them. It locks nothing.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (SELECT number, dead_retention FROM punctual.topic WHERE name = $4::text)
SELECT (SELECT micros FROM clock), :info:
FROM punctual.message AS m
WHERE m.topic = (SELECT number FROM t) AND m.visible_at > (SELECT micros / 1000 FROM clock) AND m.token = 0
  AND m.visible_at >= $5::bigint AND m.visible_at < $6::bigint AND (m.visible_at, m.id) > ($7::bigint, $8::text)
ORDER BY m.topic, m.visible_at, m.id
LIMIT $9::bigint
