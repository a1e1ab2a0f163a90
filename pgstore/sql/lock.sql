-- Locks messages by topic and ID, in whatever state, and returns what decides about their next
-- state.
-- Locks: the rows that it returns, in the order of topic and ID.
SELECT k.topic, m.*
FROM (:named:) AS k
     CROSS JOIN LATERAL (SELECT :row: FROM punctual.message AS m WHERE m.topic = k.number AND m.id = k.id FOR UPDATE) AS m
