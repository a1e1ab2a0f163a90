-- Reads up to $8 messages of topic $4 after $9 with ID $10, which died from $5, before $6, and not
-- after time $7. It locks those that were not past their retention at time $7, but for those that
-- others have locked. It returns where to go on (an ID that is NULL when there is no more), which
-- messages it has locked, and how many were to be removed; remove.sql removes them.
-- Locks: the rows that it names, in the order of topic and ID. It waits for nobody.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (SELECT number, dead_retention FROM punctual.topic WHERE name = $4::text),
met AS MATERIALIZED (
    SELECT m.died_at, m.id FROM punctual.message AS m
    WHERE m.topic = (SELECT number FROM t) AND m.died_at >= $5::bigint AND m.died_at < $6::bigint AND m.died_at <= $7::bigint
      AND (m.died_at, m.id) > ($9::bigint, $10::text)
    ORDER BY m.topic, m.died_at, m.id
    LIMIT $8::bigint
),
held AS MATERIALIZED (
    SELECT m.id
    FROM (SELECT id FROM met ORDER BY id) AS k
         CROSS JOIN LATERAL (
             SELECT m.id FROM punctual.message AS m
             WHERE m.topic = (SELECT number FROM t) AND m.id = k.id AND coalesce(m.died_at <= $7::bigint, false)
               AND ((SELECT dead_retention FROM t) = 0 OR m.died_at + (SELECT dead_retention FROM t) > $7::bigint)
             FOR UPDATE SKIP LOCKED
         ) AS m
)
SELECT clock.micros, coalesce(l.died_at, 0), l.id, (SELECT number FROM t), ARRAY(SELECT id FROM held),
       (SELECT count(*) FROM met WHERE (SELECT dead_retention FROM t) = 0 OR met.died_at + (SELECT dead_retention FROM t) > $7::bigint), false
FROM clock LEFT JOIN LATERAL (SELECT met.died_at, met.id FROM met ORDER BY met.died_at DESC, met.id DESC LIMIT 1) AS l ON true
