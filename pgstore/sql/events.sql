-- Stores the messages that tell of events, in the order given, as storekit.EventMessage describes
-- them. It returns the topics that do not exist, for which it stores nothing. The numbers in the
-- IDs are drawn from the sequence that numbers the claims, in epoch $5.
-- Locks: what it inserts. An ID is new unless somebody has pushed it, or the sequence has begun
-- anew; then the server refuses the statement, because the event that is there may be unread.
WITH stored AS (
    INSERT INTO punctual.message (topic, id, visible_at, due, first_due, created, drop_expired, expire_after, expires, body, since, key, place, arrival)
    SELECT e.number, '0~' || lpad(to_hex(($5::bigint << 52) | (nextval('punctual.claim_number') << 12)), 16, '0'), e.at, e.at, e.at, e.at,
           true, e.keep, least(e.at + e.keep, 253402300800000), e.body, e.at,
           CASE WHEN e.keyed THEN '' END, CASE WHEN e.keyed THEN e.at END, CASE WHEN e.keyed THEN nextval('punctual.arrival') * 65536 END
    FROM (
        SELECT t.number, t.keyed, u.body, u.at, u.keep
        FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS u (topic, body, at, keep, nth)
             CROSS JOIN LATERAL (SELECT t.number, t.keyed FROM punctual.topic AS t WHERE t.name = u.topic OFFSET 0) AS t
        ORDER BY u.nth
        OFFSET 0
    ) AS e
)
SELECT DISTINCT u.topic
FROM unnest($1::text[]) AS u (topic)
WHERE (SELECT t.number FROM punctual.topic AS t WHERE t.name = u.topic) IS NULL
