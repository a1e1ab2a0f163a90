-- Reads which messages of topic $4 must not be delivered, from scan start $5 on, as claim.sql names them for end.sql: all that
-- come before the first deliverable message among the 200 earliest. So a claim of one message behind many of them ends them by
-- the hundred and not one by one. It is apart from claim.sql, because it would make each claim dearer. It locks nothing.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT topic.number, topic.max_attempts, clock.micros / 1000 AS now FROM punctual.topic AS topic CROSS JOIN clock WHERE topic.name = $4::text
)
SELECT clock.micros, ARRAY(
    SELECT o.id
    FROM (
        SELECT e.id, bool_and(e.undeliverable) OVER (ORDER BY e.visible_at, e.id) AS undeliverable
        FROM (
            SELECT m.id, m.visible_at,
                   m.cancelled OR m.attempts >= coalesce(nullif(m.max_attempts, 0), (SELECT max_attempts FROM t))
                       OR coalesce(m.expires <= (SELECT now FROM t), false) AS undeliverable
            FROM punctual.message AS m
            WHERE m.topic = (SELECT number FROM t) AND m.visible_at >= $5::bigint AND m.visible_at <= (SELECT now FROM t)
            ORDER BY m.topic, m.visible_at, m.id
            LIMIT 200
        ) AS e
    ) AS o
    WHERE o.undeliverable
)
FROM clock
