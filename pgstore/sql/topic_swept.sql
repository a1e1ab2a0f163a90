-- Forgets a deleted topic of which no row is left.
-- Locks: its row in dropped_topic.
DELETE FROM punctual.dropped_topic AS d
WHERE d.number = $1::integer AND NOT EXISTS (SELECT FROM punctual.message AS m WHERE m.topic = $1::integer)
  AND NOT EXISTS (SELECT FROM punctual.finished AS s WHERE s.topic = $1::integer)
