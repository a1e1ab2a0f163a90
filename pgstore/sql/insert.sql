-- The insert of messages that push.sql and push_new.sql have in common. Both add what is returned,
-- and push.sql also adds what happens if an ID is in use. Included there as :insert:, without the
-- lines that end in "keyed", which stores nothing in topics with keys; and as :insert_keyed:,
-- without those that end in "free", which also stores there, with the keys $16, and stores no
-- message with a key in other topics.
INSERT INTO punctual.message (topic, id, visible_at, due, first_due, created, max_attempts, drop_expired,
                              expire_after, expires, headers, body, remember, attributes, since
                              , key, place, arrival -- keyed
                              )
SELECT x.number, x.id, x.due, x.due, x.due, x.now, x.max_attempts, x.drop_expired,
       x.expire_after, CASE WHEN x.expire_after IS NOT NULL THEN least(x.due + x.expire_after, 253402300800000) END, x.headers, x.body, x.remember, x.attributes,
       CASE WHEN x.delay IS NOT NULL THEN x.now END
       , CASE WHEN x.keyed THEN coalesce(x.key, '') END, CASE WHEN x.keyed THEN x.due END, -- keyed
       CASE WHEN x.keyed THEN (SELECT nextval('punctual.arrival')) * 65536 + x.n END -- keyed
FROM (
    SELECT t.number, t.keyed, i.*, coalesce(i.due_at, (clock.micros + 999) / 1000 + i.delay) AS due, clock.micros / 1000 AS now
    FROM unnest($4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::integer[], $9::boolean[], $10::bigint[], $11::bytea[], $12::bytea[],
                $13::bigint[], $14::bytea[]
                , $16::text[] -- keyed
         )
         WITH ORDINALITY -- keyed
             AS i (topic, id, due_at, delay, max_attempts, drop_expired, expire_after, headers, body, remember, attributes
                   , key, n -- keyed
             )
         CROSS JOIN LATERAL (SELECT t.number, t.push_paused, t.emit, t.keyed FROM punctual.topic AS t WHERE t.name = i.topic OFFSET 0) AS t CROSS JOIN clock
    WHERE NOT t.push_paused AND ($15::boolean OR t.emit & 16 = 0)
      AND NOT t.keyed -- free
      AND (t.keyed OR i.key IS NULL) -- keyed
) AS x
WHERE x.due <= 253402300799999
ORDER BY x.number, x.id
