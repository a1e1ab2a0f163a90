-- Saves the finished records of messages, with the failures $6 behind those in their histories;
-- NULL is none. Each record replaces an earlier one with its ID.
-- Locks: rows of finished, in the order of topic and ID. It reads rows of messages that lock.sql or
-- lock_free.sql has locked in the same transaction.
INSERT INTO punctual.finished (topic, id, outcome, ended_at, forget_at, created, first_due, due, leased_at, attempts, failures)
SELECT u.topic, u.id, u.outcome, u.ended_at, u.forget_at, m.created, m.first_due, m.due, m.leased_at, m.attempts,
       CASE WHEN u.failure IS NULL THEN m.failures
            ELSE (m.failures || u.failure)[greatest(1, cardinality(m.failures) - 14):] END
FROM (SELECT * FROM unnest($1::integer[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[])
               AS u (topic, id, outcome, ended_at, forget_at, failure)
      ORDER BY u.topic, u.id COLLATE "C") AS u
     CROSS JOIN LATERAL (
         SELECT l.created, l.first_due, l.due, CASE WHEN l.token <> 0 THEN l.leased_at END AS leased_at, l.attempts, l.failures
         FROM punctual.message AS l WHERE l.topic = u.topic AND l.id = u.id OFFSET 0
     ) AS m
ON CONFLICT (topic, id) DO UPDATE SET :finished_columns:
