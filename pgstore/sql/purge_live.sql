-- Reads up to $9 messages of topic $4 after ID $11. It locks those that are live and were in state $5 (0: in any) at
-- time $8, there from $6, before $7. It returns $10, where to go on (NULL when there is no more) and which ones it
-- has locked; remove.sql removes them. Each message is read once, in the order of ID, whatever becomes of its times
-- meanwhile.
-- Locks: the rows that it names, in the order of topic and ID. It waits for those who have locked one.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (SELECT number FROM punctual.topic WHERE name = $4::text),
met AS MATERIALIZED (
    SELECT max(m.id) AS last FROM (
        SELECT m.id FROM punctual.message AS m WHERE m.topic = (SELECT number FROM t) AND m.id > $11::text ORDER BY m.topic, m.id LIMIT $9::bigint
    ) AS m
),
held AS MATERIALIZED (
    SELECT m.id FROM punctual.message AS m
    WHERE m.topic = (SELECT number FROM t) AND m.id > $11::text AND m.id <= (SELECT last FROM met)
      AND num_nonnulls(m.visible_at) = 1 AND m.created <= $8::bigint
      AND $5::integer IN (0, CASE WHEN m.visible_at <= $8::bigint THEN 2 WHEN m.token = 0 THEN 1 ELSE 3 END)
      AND CASE WHEN m.visible_at <= $8::bigint THEN m.due ELSE m.visible_at END >= $6::bigint
      AND CASE WHEN m.visible_at <= $8::bigint THEN m.due ELSE m.visible_at END < $7::bigint
    ORDER BY m.topic, m.id
    FOR UPDATE
)
SELECT clock.micros, $10::bigint, met.last, (SELECT number FROM t), ARRAY(SELECT id FROM held) FROM clock CROSS JOIN met
