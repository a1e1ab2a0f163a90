-- Removes messages.
-- Locks: rows that lock.sql, or another statement, has locked in the same transaction.
DELETE FROM punctual.message AS m
USING unnest($1::integer[], $2::text[]) AS u (topic, id)
      CROSS JOIN LATERAL (SELECT l.ctid AS place FROM punctual.message AS l WHERE l.topic = u.topic AND l.id = u.id OFFSET 0) AS l
WHERE m.ctid = l.place
