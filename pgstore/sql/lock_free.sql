-- Is lock.sql, but passes by messages that others have locked.
-- Locks: the rows that it returns, in the order of topic and ID. It waits for nobody.
SELECT k.topic, m.*
FROM (SELECT t.number, i.topic, i.id
      FROM unnest($1::text[], $2::text[]) AS i (topic, id)
           CROSS JOIN LATERAL (SELECT t.number FROM punctual.topic AS t WHERE t.name = i.topic OFFSET 0) AS t
      ORDER BY t.number, i.id COLLATE "C") AS k
     CROSS JOIN LATERAL (
         SELECT m.id, m.topic, m.visible_at, m.due, m.first_due, m.token, m.attempts, m.max_attempts, m.cancelled,
                m.drop_expired, m.expire_after, m.expires, m.died_at, m.reason, m.forget_at, m.remember
         FROM punctual.message AS m WHERE m.topic = k.number AND m.id = k.id
         FOR UPDATE SKIP LOCKED
     ) AS m
