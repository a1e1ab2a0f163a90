-- Removes up to $5 dead messages of topic $4, and as many remembered IDs, that are past their
-- retention.
-- Locks: the rows that it removes; it skips what others have locked.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (SELECT number, dead_retention FROM punctual.topic WHERE number = $4::integer),
dead AS MATERIALIZED (
    SELECT m.ctid AS place FROM punctual.message AS m
    WHERE m.topic = (SELECT number FROM t WHERE dead_retention > 0) AND m.died_at <= (SELECT clock.micros / 1000 - t.dead_retention FROM clock, t)
    ORDER BY m.topic, m.died_at, m.id LIMIT $5::bigint FOR UPDATE SKIP LOCKED
),
finished AS MATERIALIZED (
    SELECT m.ctid AS place FROM punctual.message AS m
    WHERE m.topic = (SELECT number FROM t) AND m.forget_at <= (SELECT micros / 1000 FROM clock)
    ORDER BY m.topic, m.forget_at LIMIT $5::bigint FOR UPDATE SKIP LOCKED
)
DELETE FROM punctual.message
WHERE ctid = ANY (ARRAY(SELECT place FROM dead UNION ALL SELECT place FROM finished))
