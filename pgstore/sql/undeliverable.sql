-- Names, for end.sql, the undeliverable messages of topic $4 that come before the first deliverable one, among the 200 earliest from
-- time $5 on up to $6. Undeliverable are the same messages as in claim.sql. It runs behind a claim.sql that has met undeliverable messages
-- alone, so that claims of one message behind many such ones end these by the hundred and not one by one. It locks nothing.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT topic.number, topic.max_attempts, clock.micros / 1000 AS now
    FROM punctual.topic AS topic CROSS JOIN clock
    WHERE topic.name = $4::text AND NOT topic.delivery_paused
)
SELECT clock.micros, ARRAY(
    SELECT s.id
    FROM (
        SELECT e.id, bool_and(e.undeliverable) OVER (ORDER BY e.visible_at, e.id) AS undeliverable
        FROM (
            SELECT m.id, m.visible_at,
                   m.cancelled OR m.attempts >= coalesce(nullif(m.max_attempts, 0), (SELECT max_attempts FROM t))
                       OR coalesce(m.expires <= (SELECT now FROM t), false) AS undeliverable
            FROM punctual.message AS m
            WHERE m.topic = (SELECT number FROM t) AND m.visible_at >= $5::bigint AND m.visible_at <= least((SELECT now FROM t), $6::bigint)
            ORDER BY m.topic, m.visible_at, m.id
            LIMIT 200
        ) AS e
    ) AS s
    WHERE s.undeliverable
)
FROM clock
