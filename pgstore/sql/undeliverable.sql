-- Names the messages of topic $4 that a claim must end (must_end.sql) and that come before the
-- first one that it may lease, among the $7 earliest from time $5 up to $6. It locks nothing. A
-- transaction that locks them ends them (endMessages).
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT topic.number, topic.max_attempts, clock.micros / 1000 AS now
    FROM punctual.topic AS topic CROSS JOIN clock
    WHERE topic.name = $4::text
)
SELECT clock.micros, ARRAY(
    SELECT s.id
    FROM (
        SELECT e.id, bool_and(e.undeliverable) OVER (ORDER BY e.visible_at, e.id) AS undeliverable
        FROM (
            SELECT m.id, m.visible_at, :must_end: AS undeliverable
            FROM punctual.message AS m
            WHERE m.topic = (SELECT number FROM t) AND m.visible_at >= $5::bigint AND m.visible_at <= least((SELECT now FROM t), $6::bigint)
            ORDER BY m.topic, m.visible_at, m.id
            LIMIT $7::bigint
        ) AS e
    ) AS s
    WHERE s.undeliverable
)
FROM clock
