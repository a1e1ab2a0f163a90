-- Reads one page of the ready messages of topic $4: from $5, before $6, after $7 with ID $8, up to
-- $9 of them. It sorts all that are ready, and locks nothing.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (SELECT number, dead_retention FROM punctual.topic WHERE name = $4::text)
SELECT (SELECT micros FROM clock), :info:
FROM (SELECT m.* FROM punctual.message AS m
      WHERE m.topic = (SELECT number FROM t) AND m.visible_at <= (SELECT micros / 1000 FROM clock)
      ORDER BY m.topic, m.visible_at, m.id OFFSET 0) AS m
WHERE m.due >= $5::bigint AND m.due < $6::bigint AND (m.due, m.id) > ($7::bigint, $8::text)
ORDER BY m.topic, m.due, m.id
LIMIT $9::bigint
