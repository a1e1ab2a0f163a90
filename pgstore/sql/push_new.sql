-- Stores messages whose IDs the store has made, so that they are free: those whose topic exists and takes pushes, unless it tells
-- of pushes (bit 16 of emit). It returns a row for each topic with the number of messages stored, and, if these are not all, one
-- for each of them. The arguments are those of push.sql but for the last one. An insert without ON CONFLICT costs the server
-- less. If an ID is in use after all, the server refuses all (unique_violation), and push.sql is tried instead.
-- Locks: nothing but what it inserts, in the order of topic and ID.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT number, name, push_paused, emit & 16 <> 0 AS tells FROM punctual.topic WHERE name = ANY ($4::text[])
),
stored AS (
    INSERT INTO punctual.message (topic, id, visible_at, due, first_due, created, max_attempts, drop_expired,
                                  expire_after, expires, headers, body, remember, attributes)
    SELECT x.number, x.id, x.due, x.due, x.due, x.now, x.max_attempts, x.drop_expired,
           x.expire_after, CASE WHEN x.expire_after IS NOT NULL THEN least(x.due + x.expire_after, 253402300800000) END, x.headers, x.body, x.remember, x.attributes
    FROM (
        SELECT t.number, i.*, coalesce(i.due_at, (clock.micros + 999) / 1000 + i.delay) AS due, clock.micros / 1000 AS now
        FROM unnest($4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::integer[], $9::boolean[], $10::bigint[], $11::bytea[], $12::bytea[],
                    $13::bigint[], $14::bytea[])
                 AS i (topic, id, due_at, delay, max_attempts, drop_expired, expire_after, headers, body, remember, attributes)
             CROSS JOIN LATERAL (SELECT t.number, t.push_paused, t.emit FROM punctual.topic AS t WHERE t.name = i.topic OFFSET 0) AS t CROSS JOIN clock
        WHERE NOT t.push_paused AND t.emit & 16 = 0
    ) AS x
    WHERE x.due <= 253402300799999
    ORDER BY x.number, x.id
    RETURNING topic, id, due
),
number AS MATERIALIZED (SELECT count(*) AS of FROM stored)
SELECT clock.micros, number.of, t.number, t.name, t.push_paused, t.tells, NULL, NULL FROM clock CROSS JOIN number CROSS JOIN t
UNION ALL
SELECT clock.micros, number.of, stored.topic, NULL, NULL, NULL, stored.id, stored.due
FROM clock CROSS JOIN number CROSS JOIN stored WHERE number.of < cardinality($5::text[])
