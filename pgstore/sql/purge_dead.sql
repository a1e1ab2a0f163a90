-- Removes up to $8 messages of topic $4 that died from $5, before $6, and were not yet outlived at time $7.
-- Locks: the rows that it removes, in the order of topic and ID. It waits for those who have locked one, and
-- removes by ID: the place of a row that changed meanwhile is one that the statement cannot see.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (SELECT number, dead_retention FROM punctual.topic WHERE name = $4::text),
wanted AS MATERIALIZED (
    SELECT m.id FROM punctual.message AS m
    WHERE m.topic = (SELECT number FROM t) AND m.died_at IS NOT NULL AND (SELECT micros FROM clock) > 0
      AND ((SELECT dead_retention FROM t) = 0 OR m.died_at + (SELECT dead_retention FROM t) > $7::bigint)
      AND m.died_at >= $5::bigint AND m.died_at < $6::bigint AND m.died_at <= $7::bigint
    LIMIT $8::bigint
),
held AS MATERIALIZED (
    SELECT m.topic, m.id FROM wanted JOIN punctual.message AS m ON m.topic = (SELECT number FROM t) AND m.id = wanted.id
    WHERE m.died_at IS NOT NULL
    ORDER BY m.topic, m.id
    FOR UPDATE OF m
)
DELETE FROM punctual.message AS m USING held WHERE m.topic = held.topic AND m.id = held.id
