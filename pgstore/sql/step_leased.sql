-- Carries the times at which leases began over a step of the clock by $3 ms (lifecycle.Step).
-- Locks: rows that lock.sql has locked in the same transaction.
UPDATE punctual.message AS m SET leased_at = m.leased_at - $3::bigint
FROM unnest($1::integer[], $2::text[]) AS u (topic, id)
     CROSS JOIN LATERAL (SELECT l.ctid AS place FROM punctual.message AS l WHERE l.topic = u.topic AND l.id = u.id OFFSET 0) AS l
WHERE m.ctid = l.place
