-- Removes up to $2 rows of the deleted topic $1.
-- Locks: the rows that it removes, in the order of topic and ID.
DELETE FROM punctual.message
WHERE ctid = ANY (ARRAY(SELECT m.ctid FROM punctual.message AS m WHERE m.topic = $1::integer ORDER BY m.topic, m.id LIMIT $2::bigint FOR UPDATE))
