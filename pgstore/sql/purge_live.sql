-- Reads up to $9 messages of topic $4 after ID $11. It locks those that are to be removed
-- (purgeable.sql), but for those that others have locked. It returns $10, where to go on (an ID
-- that is NULL when there is no more), which messages it has locked, and how many were to be
-- removed; remove.sql removes them. It also returns whether the topic has keys. A purge goes by the
-- order of ID, so that it misses no message whose times change meanwhile. Locks: the rows that it
-- names, in the order of topic and ID. It waits for nobody.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (SELECT number, keyed FROM punctual.topic WHERE name = $4::text),
met AS MATERIALIZED (
    SELECT max(m.id) AS last, count(*) FILTER (WHERE :purgeable:) AS fitting
    FROM (
        SELECT m.id, m.visible_at, m.due, m.token, m.created FROM punctual.message AS m
        WHERE m.topic = (SELECT number FROM t) AND m.id > $11::text ORDER BY m.topic, m.id LIMIT $9::bigint
    ) AS m
),
held AS MATERIALIZED (
    SELECT m.id FROM punctual.message AS m
    WHERE m.topic = (SELECT number FROM t) AND m.id > $11::text AND m.id <= (SELECT last FROM met) AND :purgeable:
    ORDER BY m.topic, m.id
    FOR UPDATE SKIP LOCKED
)
SELECT clock.micros, $10::bigint, met.last, (SELECT number FROM t), ARRAY(SELECT id FROM held), met.fitting, (SELECT keyed FROM t) FROM clock CROSS JOIN met
