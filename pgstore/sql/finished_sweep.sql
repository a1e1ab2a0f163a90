-- Removes up to $2 finished records of the deleted topic $1.
-- Locks: the rows that it removes, in the order of topic and ID.
DELETE FROM punctual.finished
WHERE ctid = ANY (ARRAY(SELECT s.ctid FROM punctual.finished AS s WHERE s.topic = $1::integer ORDER BY s.topic, s.id LIMIT $2::bigint FOR UPDATE))
