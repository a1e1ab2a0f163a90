-- Gives messages their next state, and adds a failure to the histories of those that have one in
-- $12.
-- Locks: rows that lock.sql or lock_free.sql has locked in the same transaction.
UPDATE punctual.message AS m
SET visible_at = u.visible_at, due = u.due, first_due = u.first_due, expires = u.expires, token = u.token, attempts = u.attempts,
    place = CASE WHEN m.key IS NOT NULL AND u.token = 0 AND u.visible_at IS NOT NULL
                 THEN CASE WHEN m.key > '' AND (SELECT t.in_order FROM punctual.topic AS t WHERE t.number = m.topic) THEN u.first_due ELSE u.due END
                 WHEN u.visible_at IS NOT NULL THEN m.place END,
    cancelled = u.cancelled, died_at = u.died_at, reason = u.reason, since = u.since,
    failures = CASE WHEN u.failure IS NULL THEN m.failures
                    ELSE (m.failures || u.failure)[greatest(1, cardinality(m.failures) - 14):] END
FROM unnest($1::integer[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::integer[],
            $9::boolean[], $10::bigint[], $11::text[], $12::bytea[], $13::bigint[])
         AS u (topic, id, visible_at, due, first_due, expires, token, attempts, cancelled, died_at, reason, failure, since)
     CROSS JOIN LATERAL (SELECT l.ctid AS place FROM punctual.message AS l WHERE l.topic = u.topic AND l.id = u.id OFFSET 0) AS l
WHERE m.ctid = l.place
