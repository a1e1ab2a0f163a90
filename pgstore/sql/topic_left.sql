-- Counts the messages of the deleted topic $1 that topic_sweep.sql has left, as it counts them,
-- because others have locked them. It locks nothing.
SELECT count(*) FROM punctual.message AS m
WHERE m.topic = $1::integer AND (m.visible_at IS NOT NULL OR m.died_at IS NOT NULL AND ($2::bigint = 0 OR m.died_at + $2::bigint > $3::bigint))
