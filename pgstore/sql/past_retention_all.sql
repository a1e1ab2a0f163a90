-- Removes all dead messages of topic $4 that are past their retention, before the topic may get a
-- longer one, which would bring them back. It returns how many it has left, because others have
-- locked them or changed them a moment ago.
-- Locks: the rows that it removes; it skips what others have locked.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT topic.number, clock.micros / 1000 - topic.dead_retention AS died
    FROM punctual.topic AS topic CROSS JOIN clock
    WHERE topic.number = $4::integer AND topic.dead_retention > 0
),
met AS MATERIALIZED (
    SELECT m.id FROM punctual.message AS m
    WHERE m.topic = (SELECT number FROM t) AND m.died_at <= (SELECT died FROM t)
    ORDER BY m.topic, m.died_at, m.id
),
held AS MATERIALIZED (
    SELECT m.ctid AS place FROM punctual.message AS m
    WHERE m.topic = (SELECT number FROM t) AND m.died_at <= (SELECT died FROM t)
    ORDER BY m.topic, m.died_at, m.id FOR UPDATE SKIP LOCKED
),
removed AS (
    DELETE FROM punctual.message WHERE ctid = ANY (ARRAY(SELECT place FROM held))
    RETURNING id
)
SELECT clock.micros, (SELECT count(*) FROM met) - (SELECT count(*) FROM removed) FROM clock
