-- Does what lock.sql does, but skips messages that others have locked.
-- Locks: the rows that it returns, in the order of topic and ID. It waits for nobody.
SELECT k.topic, m.*
FROM (:named:) AS k
     CROSS JOIN LATERAL (SELECT :row: FROM punctual.message AS m WHERE m.topic = k.number AND m.id = k.id FOR UPDATE SKIP LOCKED) AS m
