-- Carries what is kept of ended messages of topic $4 over a step of the clock by $5 ms: what has ended in the future, because the clock
-- was ahead, moves with the step, and so does the time until which it is kept (lifecycle.Step). Messages that have been carried over have
-- ended in the past, so a second pass leaves them.
-- Locks: the rows that it changes.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (SELECT number, micros / 1000 AS now FROM punctual.topic CROSS JOIN clock WHERE name = $4::text),
dead AS (
    UPDATE punctual.message AS m SET died_at = m.died_at - $5::bigint
    WHERE m.topic = (SELECT number FROM t) AND m.died_at > (SELECT now FROM t)
),
remembered AS (
    UPDATE punctual.message AS m SET forget_at = m.forget_at - $5::bigint, since = m.since - $5::bigint
    WHERE m.topic = (SELECT number FROM t) AND m.forget_at > (SELECT now FROM t) AND m.since > (SELECT now FROM t)
)
UPDATE punctual.finished AS f SET ended_at = f.ended_at - $5::bigint, forget_at = f.forget_at - $5::bigint
WHERE f.topic = (SELECT number FROM t) AND f.forget_at > (SELECT now FROM t) AND f.ended_at > (SELECT now FROM t)
