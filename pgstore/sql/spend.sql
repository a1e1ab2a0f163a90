-- Ends those of the messages $5 of topic $4 that a claim has met and that must not be delivered any more. They are
-- dead then, or removed, or their IDs are remembered.
-- Locks: the rows that it ends, in the order of ID; it passes by what others have locked.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT topic.number, topic.max_attempts, topic.dedupe_window, clock.micros / 1000 AS now
    FROM punctual.topic AS topic CROSS JOIN clock
    WHERE topic.name = $4::text
),
spent AS MATERIALIZED (
    SELECT m.place, m.finish
    FROM (SELECT id FROM unnest($5::text[]) AS id ORDER BY id COLLATE "C") AS k
         CROSS JOIN LATERAL (
             SELECT m.ctid AS place,
                    m.cancelled OR m.drop_expired AND m.attempts < coalesce(nullif(m.max_attempts, 0), (SELECT max_attempts FROM t)) AS finish
             FROM punctual.message AS m
             WHERE m.topic = (SELECT number FROM t) AND m.id = k.id AND coalesce(m.visible_at <= (SELECT now FROM t), false)
               AND (m.cancelled OR m.attempts >= coalesce(nullif(m.max_attempts, 0), (SELECT max_attempts FROM t))
                    OR m.expires <= (SELECT now FROM t))
             FOR UPDATE SKIP LOCKED
         ) AS m
),
died AS (
    UPDATE punctual.message
    SET visible_at = NULL, died_at = (SELECT now FROM t), token = 0,
        reason = CASE WHEN attempts >= coalesce(nullif(max_attempts, 0), (SELECT max_attempts FROM t))
                      THEN 'attempts used up' ELSE 'expired' END,
        failures = CASE WHEN token = 0 THEN failures ELSE
            (failures || convert_to(attempts || ' ' || (SELECT now FROM t) || ' lease ran out', 'UTF8'))[greatest(1, cardinality(failures) - 14):] END
    WHERE ctid = ANY (ARRAY(SELECT place FROM spent WHERE NOT finish))
),
removed AS (
    DELETE FROM punctual.message
    WHERE ctid = ANY (ARRAY(SELECT place FROM spent WHERE finish AND (SELECT dedupe_window FROM t) = 0))
),
remembered AS (
    UPDATE punctual.message
    SET forget_at = (SELECT now + dedupe_window FROM t), visible_at = NULL, token = 0, cancelled = false,
        headers = NULL, body = NULL, failures = NULL
    WHERE ctid = ANY (ARRAY(SELECT place FROM spent WHERE finish AND (SELECT dedupe_window FROM t) > 0))
)
SELECT micros FROM clock
