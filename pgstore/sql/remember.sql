-- Removes messages but for their IDs, which stay in use until a time. The column since has when the
-- messages ended.
-- Locks: rows that lock.sql or lock_free.sql has locked in the same transaction.
UPDATE punctual.message AS m
SET forget_at = u.forget_at, since = u.ended, visible_at = NULL, died_at = NULL, reason = NULL, token = 0, cancelled = false,
    headers = NULL, body = NULL, failures = NULL, attributes = NULL, place = NULL
FROM unnest($1::integer[], $2::text[], $3::bigint[], $4::bigint[]) AS u (topic, id, forget_at, ended)
     CROSS JOIN LATERAL (SELECT l.ctid AS place FROM punctual.message AS l WHERE l.topic = u.topic AND l.id = u.id OFFSET 0) AS l
WHERE m.ctid = l.place
