-- Removes what absent.sql has stored: rows that are neither live nor dead nor remembered IDs.
-- Locks: nothing that absent.sql has not locked in the same transaction.
DELETE FROM punctual.message AS m
USING unnest($1::text[], $2::text[]) AS u (topic, id)
      CROSS JOIN LATERAL (SELECT t.number FROM punctual.topic AS t WHERE t.name = u.topic OFFSET 0) AS t
      CROSS JOIN LATERAL (SELECT l.ctid AS place FROM punctual.message AS l WHERE l.topic = t.number AND l.id = u.id AND num_nonnulls(l.visible_at, l.died_at, l.forget_at) = 0 OFFSET 0) AS l
WHERE m.ctid = l.place
