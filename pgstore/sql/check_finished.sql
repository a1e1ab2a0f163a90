-- Reads all finished records of each topic, and names up to 100 of the topic that no sound store
-- has. It locks nothing.
SELECT t.name, (
    SELECT array_agg(p.id || ' ' || p.problem) FROM (
        SELECT s.id, CASE
            WHEN s.outcome NOT IN ('acked', 'cancelled', 'expired') THEN 'has a finished record with an unknown outcome'
            WHEN s.forget_at <= s.ended_at THEN 'has a finished record whose retention ended before the message did'
            WHEN s.attempts < 0 THEN 'has a finished record with a negative number of attempts'
            END AS problem
        FROM punctual.finished AS s WHERE s.topic = t.number
    ) AS p WHERE p.problem IS NOT NULL LIMIT 100)
FROM punctual.topic AS t
ORDER BY t.name
