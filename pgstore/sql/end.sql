-- Ends those of the messages $5 of topic $4 that are undeliverable, as a claim has found them. A message becomes dead, or it is removed
-- and what it or its topic asks for is kept: the ID, the finished record. It decides what lifecycle.Meet decides, and in the same order.
-- In a topic that tells of such endings (bits 2, 4 and 8 of emit) it ends nothing and says so.
-- Locks: the rows that it ends, and then their finished records, in the order of ID. It skips messages that others have locked.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT topic.number, topic.max_attempts, topic.dedupe_window, topic.finished_retention, clock.micros / 1000 AS now
    FROM punctual.topic AS topic CROSS JOIN clock
    WHERE topic.name = $4::text AND topic.emit & 14 = 0
),
undeliverable AS MATERIALIZED (
    SELECT m.place, m.finish, m.keep
    FROM (SELECT id FROM unnest($5::text[]) AS id ORDER BY id COLLATE "C") AS k
         CROSS JOIN LATERAL (
             SELECT m.ctid AS place,
                    m.cancelled OR m.drop_expired AND m.attempts < coalesce(nullif(m.max_attempts, 0), (SELECT max_attempts FROM t)) AS finish,
                    coalesce(m.remember, (SELECT dedupe_window FROM t)) AS keep
             FROM punctual.message AS m
             WHERE m.topic = (SELECT number FROM t) AND m.id = k.id AND coalesce(m.visible_at <= (SELECT now FROM t), false)
               AND (m.cancelled OR m.attempts >= coalesce(nullif(m.max_attempts, 0), (SELECT max_attempts FROM t))
                    OR m.expires <= (SELECT now FROM t))
             FOR UPDATE SKIP LOCKED
         ) AS m
),
saved AS (
    INSERT INTO punctual.finished (topic, id, outcome, ended_at, forget_at, created, first_due, due, leased_at, attempts, failures)
    SELECT m.topic, m.id, CASE WHEN m.cancelled THEN 'cancelled' ELSE 'expired' END, t.now, t.now + t.finished_retention,
           m.created, m.first_due, m.due, CASE WHEN m.token <> 0 THEN m.leased_at END, m.attempts,
           CASE WHEN m.token = 0 THEN m.failures ELSE
               (m.failures || convert_to(m.attempts || ' ' || t.now || ' lease ran out', 'UTF8'))[greatest(1, cardinality(m.failures) - 14):] END
    FROM t CROSS JOIN undeliverable JOIN punctual.message AS m ON m.ctid = undeliverable.place
    WHERE undeliverable.finish AND t.finished_retention > 0
    ON CONFLICT (topic, id) DO UPDATE SET :finished_columns:
),
died AS (
    UPDATE punctual.message
    SET visible_at = NULL, died_at = (SELECT now FROM t), token = 0,
        reason = CASE WHEN attempts >= coalesce(nullif(max_attempts, 0), (SELECT max_attempts FROM t))
                      THEN 'attempts used up' ELSE 'expired' END,
        failures = CASE WHEN token = 0 THEN failures ELSE
            (failures || convert_to(attempts || ' ' || (SELECT now FROM t) || ' lease ran out', 'UTF8'))[greatest(1, cardinality(failures) - 14):] END
    WHERE ctid = ANY (ARRAY(SELECT place FROM undeliverable WHERE NOT finish))
),
removed AS (
    DELETE FROM punctual.message
    WHERE ctid = ANY (ARRAY(SELECT place FROM undeliverable WHERE finish AND keep = 0))
),
remembered AS (
    UPDATE punctual.message
    SET forget_at = (SELECT now + coalesce(message.remember, dedupe_window) FROM t), since = (SELECT now FROM t), visible_at = NULL, token = 0, cancelled = false,
        headers = NULL, body = NULL, failures = NULL, attributes = NULL
    WHERE ctid = ANY (ARRAY(SELECT place FROM undeliverable WHERE finish AND keep > 0))
)
SELECT micros, coalesce((SELECT t.emit & 14 <> 0 FROM punctual.topic AS t WHERE t.name = $4::text), false) FROM clock
