-- Carries what is kept of ended messages of topic $4 over a step of the clock by $5 ms: what has
-- ended in the future, because the clock was ahead, moves with the step, and so does the time until
-- which it is kept (lifecycle.Step). Messages that have been carried over have ended in the past,
-- so a second pass leaves them. A message may have ended after the step, and its lease have begun
-- before. If step $6 is not the last one, nothing changes.
-- Locks: the rows that it changes, and the row of the table clock_step, shared.
WITH clock AS MATERIALIZED (:clock:),
last AS MATERIALIZED (SELECT steps FROM punctual.clock_step WHERE steps = $6::bigint FOR KEY SHARE),
t AS MATERIALIZED (SELECT number, micros / 1000 AS now FROM punctual.topic CROSS JOIN clock CROSS JOIN last WHERE name = $4::text),
dead AS (
    UPDATE punctual.message AS m SET died_at = m.died_at - $5::bigint
    WHERE m.topic = (SELECT number FROM t) AND m.died_at > (SELECT now FROM t)
),
remembered AS (
    UPDATE punctual.message AS m SET forget_at = m.forget_at - $5::bigint, since = m.since - $5::bigint
    WHERE m.topic = (SELECT number FROM t) AND m.forget_at > (SELECT now FROM t) AND m.since > (SELECT now FROM t)
),
keys AS ( -- whose turn was to come by the clock that was ahead
    UPDATE punctual.key AS r SET at = (SELECT now FROM t)
    WHERE r.topic = (SELECT number FROM t) AND r.at > (SELECT now FROM t)
)
UPDATE punctual.finished AS f
SET ended_at = CASE WHEN f.ended_at > t.now THEN f.ended_at - $5::bigint ELSE f.ended_at END,
    forget_at = CASE WHEN f.ended_at > t.now THEN f.forget_at - $5::bigint ELSE f.forget_at END,
    leased_at = CASE WHEN f.leased_at > t.now THEN f.leased_at - $5::bigint
                     WHEN f.leased_at > f.ended_at - $5::bigint THEN f.ended_at - $5::bigint
                     ELSE f.leased_at END
FROM t
WHERE f.topic = t.number AND f.forget_at > t.now AND (f.ended_at > t.now OR f.leased_at > t.now)
