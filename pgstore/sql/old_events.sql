-- Reads the IDs of the first events of topic t that a claim would end, up to $5, until there is one that a claim would deliver.
-- loadStatements puts it in the place of the IDs of end.sql, and calls the result end_events. It locks nothing.
SELECT o.id
FROM (
    SELECT e.id, bool_and(e.undeliverable) OVER (ORDER BY e.visible_at, e.id) AS undeliverable
    FROM (
        SELECT m.id, m.visible_at,
               m.cancelled OR m.attempts >= coalesce(nullif(m.max_attempts, 0), (SELECT max_attempts FROM t))
                   OR coalesce(m.expires <= (SELECT now FROM t), false) AS undeliverable
        FROM punctual.message AS m
        WHERE m.topic = (SELECT number FROM t) AND m.visible_at <= (SELECT now FROM t)
        ORDER BY m.topic, m.visible_at, m.id
        LIMIT $5::bigint
    ) AS e
) AS o
WHERE o.undeliverable
