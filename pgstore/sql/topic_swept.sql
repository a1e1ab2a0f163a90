-- Forgets the deleted topic $1, if no row of its messages and finished records is left.
-- Locks: its row in dropped_topic.
WITH keys AS (DELETE FROM punctual.key WHERE topic = $1::integer)
DELETE FROM punctual.dropped_topic AS d
WHERE d.number = $1::integer AND NOT EXISTS (SELECT FROM punctual.message AS m WHERE m.topic = $1::integer)
  AND NOT EXISTS (SELECT FROM punctual.finished AS s WHERE s.topic = $1::integer)
