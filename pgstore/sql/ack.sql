-- Finishes messages under their current token, and returns which ones. The others it leaves as they are.
-- Locks: the rows that it removes, in the order of topic and ID.
-- It removes by ID: the place of a row that changed while this waited for its lock is one that the statement cannot see.
WITH clock AS MATERIALIZED (:clock:),
held AS MATERIALIZED (
    SELECT m.topic AS number, k.topic, m.id, t.dedupe_window
    FROM unnest($4::text[], $5::text[], $6::bigint[]) AS k (topic, id, token)
         JOIN punctual.topic AS t ON t.name = k.topic
         JOIN punctual.message AS m ON m.topic = t.number AND m.id = k.id
    WHERE m.visible_at IS NOT NULL AND m.token = k.token AND m.token <> 0
    ORDER BY m.topic, m.id
    FOR UPDATE OF m
),
removed AS (
    DELETE FROM punctual.message AS m USING held WHERE held.dedupe_window = 0 AND m.topic = held.number AND m.id = held.id
    RETURNING m.topic, m.id
),
remembered AS (
    UPDATE punctual.message AS m
    SET forget_at = (SELECT micros FROM clock) / 1000 + held.dedupe_window, visible_at = NULL, token = 0, cancelled = false,
        headers = NULL, body = NULL, failures = NULL
    FROM held WHERE held.dedupe_window > 0 AND m.topic = held.number AND m.id = held.id
    RETURNING m.topic, m.id
)
SELECT clock.micros, d.name, d.id
FROM clock LEFT JOIN (
    SELECT held.topic AS name, held.id
    FROM held JOIN (SELECT * FROM removed UNION ALL SELECT * FROM remembered) AS r ON r.topic = held.number AND r.id = held.id
) AS d ON true
