-- Puts messages in the place of others that have their IDs, as if those had never been. The answer
-- is that of push.sql, and so are the arguments but for the last one. It changes the rows, because
-- those who wait for the lock of a row that is removed and stored anew would see neither the old
-- row nor the new one.
-- replace_keyed, for topics with keys, has the keys $15, and the lines that end in "keyed".
-- Locks: rows that lock.sql has locked in the same transaction.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT number, name, push_paused, emit & 16 <> 0 AS tells, keyed FROM punctual.topic WHERE name = ANY ($4::text[])
),
stored AS (
    UPDATE punctual.message AS m
    SET visible_at = x.due, due = x.due, first_due = x.due, created = x.now, token = 0, attempts = 0,
        max_attempts = x.max_attempts, cancelled = false, drop_expired = x.drop_expired, expire_after = x.expire_after,
        expires = CASE WHEN x.expire_after IS NOT NULL THEN least(x.due + x.expire_after, 253402300800000) END,
        died_at = NULL, reason = NULL, forget_at = NULL, headers = x.headers, body = x.body, failures = NULL,
        remember = x.remember, attributes = x.attributes, since = CASE WHEN x.delay IS NOT NULL THEN x.now END
        , key = CASE WHEN x.keyed THEN coalesce(x.key, '') END, place = CASE WHEN x.keyed THEN x.due END, -- keyed
        arrival = CASE WHEN x.keyed THEN (SELECT nextval('punctual.arrival')) * 65536 + x.n END -- keyed
    FROM (
        SELECT t.number, t.keyed, i.*, coalesce(i.due_at, (clock.micros + 999) / 1000 + i.delay) AS due, clock.micros / 1000 AS now
        FROM unnest($4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::integer[], $9::boolean[], $10::bigint[], $11::bytea[], $12::bytea[],
                    $13::bigint[], $14::bytea[]
                    , $15::text[] -- keyed
             )
             WITH ORDINALITY -- keyed
                 AS i (topic, id, due_at, delay, max_attempts, drop_expired, expire_after, headers, body, remember, attributes
                       , key, n -- keyed
                 )
             CROSS JOIN LATERAL (SELECT t.number, t.push_paused, t.keyed FROM punctual.topic AS t WHERE t.name = i.topic OFFSET 0) AS t CROSS JOIN clock
    ) AS x
    CROSS JOIN LATERAL (SELECT l.ctid AS place FROM punctual.message AS l WHERE l.topic = x.number AND l.id = x.id OFFSET 0) AS l
    WHERE x.due <= 253402300799999 AND m.ctid = l.place
    RETURNING m.topic, m.id, m.due
    , m.key -- keyed
)
, noted AS ( -- keyed
    INSERT INTO punctual.key (topic, key, at) -- keyed
    SELECT topic, key, min(least(due, (SELECT micros FROM clock) / 1000)) FROM stored WHERE key > '' GROUP BY 1, 2 -- keyed
) -- keyed
SELECT clock.micros, t.number, t.name, t.push_paused, t.tells, t.keyed, NULL, NULL FROM clock CROSS JOIN t
UNION ALL
SELECT clock.micros, stored.topic, NULL, NULL, NULL, NULL, stored.id, stored.due FROM clock CROSS JOIN stored
