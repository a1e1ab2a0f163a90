-- Removes up to $9 live messages of topic $4 that were in state $5 (0: in any) at time $8, and there from $6, before $7.
-- Locks: the rows that it removes, in the order of topic and ID. It waits for those who have locked one, and
-- removes by ID: the place of a row that changed meanwhile is one that the statement cannot see.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (SELECT number FROM punctual.topic WHERE name = $4::text),
wanted AS MATERIALIZED (
    SELECT m.id FROM punctual.message AS m
    WHERE m.topic = (SELECT number FROM t) AND m.visible_at IS NOT NULL AND m.created <= $8::bigint AND (SELECT micros FROM clock) > 0
      AND $5::integer IN (0, CASE WHEN m.visible_at <= $8::bigint THEN 2 WHEN m.token = 0 THEN 1 ELSE 3 END)
      AND CASE WHEN m.visible_at <= $8::bigint THEN m.due ELSE m.visible_at END >= $6::bigint
      AND CASE WHEN m.visible_at <= $8::bigint THEN m.due ELSE m.visible_at END < $7::bigint
    LIMIT $9::bigint
),
held AS MATERIALIZED (
    SELECT m.topic, m.id FROM wanted JOIN punctual.message AS m ON m.topic = (SELECT number FROM t) AND m.id = wanted.id
    WHERE m.visible_at IS NOT NULL AND $5::integer IN (0, CASE WHEN m.visible_at <= $8::bigint THEN 2 WHEN m.token = 0 THEN 1 ELSE 3 END)
    ORDER BY m.topic, m.id
    FOR UPDATE OF m
)
DELETE FROM punctual.message AS m USING held WHERE m.topic = held.topic AND m.id = held.id
