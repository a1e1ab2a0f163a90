-- Locks messages by topic and ID, in whatever state, and returns what decides about their next one.
-- Locks: the rows that it returns, in the order of topic and ID.
SELECT k.topic, m.id, m.topic, m.visible_at, m.due, m.first_due, m.token, m.attempts, m.max_attempts, m.cancelled,
       m.drop_expired, m.expire_after, m.expires, m.died_at, m.reason, m.forget_at
FROM unnest($1::text[], $2::text[]) AS k (topic, id)
     JOIN punctual.topic AS t ON t.name = k.topic
     JOIN punctual.message AS m ON m.topic = t.number AND m.id = k.id
ORDER BY m.topic, m.id
FOR UPDATE OF m
