-- Names of each topic up to 100 keys at which no claim would look when their turn comes. It reads
-- all messages with keys, and locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT t.name, (
    SELECT array_agg(p.key || ' is a key with messages that no claim would find') FROM (
        SELECT k.key
        FROM (SELECT DISTINCT m.topic, m.key FROM punctual.message AS m WHERE m.topic = t.number AND m.place IS NOT NULL AND m.key > '') AS k
             CROSS JOIN LATERAL (:look:) AS l
        WHERE :lost:
        LIMIT 100
    ) AS p)
FROM punctual.topic AS t WHERE t.keyed
ORDER BY t.name
