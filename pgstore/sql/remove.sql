-- Removes messages.
-- Locks: rows that lock.sql has locked in the same transaction.
DELETE FROM punctual.message AS m
USING unnest($1::integer[], $2::text[]) AS u (topic, id)
WHERE m.topic = u.topic AND m.id = u.id
