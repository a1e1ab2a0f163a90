-- Chooses up to $5 messages of topic t, which has keys, in the order of their turns: those of keys
-- that have room, those without a key, and those whose lease has run out. It looks at the keys of
-- up to $5 + 50 rows of the table key whose time has come. It reads no rows before $9 or after $12,
-- unless that is NULL. If the topic has as many leases as it may, it chooses only messages whose
-- lease has run out. Where $13 is not NULL, it chooses only messages with these IDs, and looks at
-- their keys. Included in claim.sql as :turns:.
-- Locks: the messages that it chooses, and others of those without a key and of those whose lease
-- has run out. It skips messages that others have locked.
told AS MATERIALIZED (
    SELECT r.key, r.at FROM punctual.key AS r
    WHERE r.topic = (SELECT number FROM t WHERE $13::text[] IS NULL) AND r.at >= $9::bigint AND r.at <= least((SELECT now FROM t), $12::bigint)
    ORDER BY r.topic, r.at, r.number
    LIMIT $5::bigint + 50
),
named AS MATERIALIZED (
    SELECT i.id, i.n, m.key
    FROM unnest($13::text[]) WITH ORDINALITY AS i (id, n)
         CROSS JOIN LATERAL (SELECT m.key FROM punctual.message AS m WHERE m.topic = (SELECT number FROM t) AND m.id = i.id AND num_nonnulls(m.place) = 1 OFFSET 0) AS m
),
looked AS MATERIALIZED (
    SELECT k.topic, k.key, l.*
    FROM (SELECT DISTINCT (SELECT number FROM t) AS topic, s.key FROM (SELECT key FROM told UNION ALL SELECT key FROM named WHERE key > '') AS s) AS k
         CROSS JOIN LATERAL (:look:) AS l
),
unkeyed AS MATERIALIZED (
    SELECT m.id, m.place, m.token FROM punctual.message AS m
    WHERE m.topic = (SELECT number FROM t) AND m.key = '' AND m.place >= $9::bigint AND m.place <= least((SELECT now FROM t), $12::bigint)
    ORDER BY m.topic, m.key, m.place, m.arrival
    LIMIT CASE WHEN $13::text[] IS NULL THEN $5::bigint ELSE 0 END
    FOR UPDATE SKIP LOCKED
),
unkeyed_named AS MATERIALIZED (
    SELECT n.id, m.place, m.token
    FROM named AS n
         CROSS JOIN LATERAL (SELECT m.place, m.token FROM punctual.message AS m WHERE m.topic = (SELECT number FROM t) AND m.id = n.id OFFSET 0) AS m
    WHERE n.key = '' AND m.place <= (SELECT now FROM t)
),
lapsed AS MATERIALIZED (
    SELECT m.*, l.opens, l.gate
    FROM (
        SELECT m.topic, m.key, m.id, m.visible_at, m.token, m.place FROM punctual.message AS m
        WHERE m.topic = (SELECT number FROM t) AND m.counted AND m.token <> 0 AND m.visible_at <= (SELECT now FROM t)
        ORDER BY m.topic, m.visible_at, m.id
        LIMIT (SELECT CASE WHEN t.key_gap = 0 AND $13::text[] IS NULL THEN $5::bigint END FROM t)
        FOR UPDATE SKIP LOCKED
    ) AS m
    LEFT JOIN LATERAL (SELECT l.opens, l.gate FROM (SELECT m.topic, m.key WHERE m.key > '' AND (SELECT key_gap FROM t) > 0) AS k CROSS JOIN LATERAL (:look:) AS l) AS l ON true
),
read AS MATERIALIZED (
    SELECT least(CASE WHEN (SELECT count(*) FROM told) = $5::bigint + 50 THEN (SELECT max(at) FROM told) END,
                 CASE WHEN (SELECT count(*) FROM unkeyed) = $5::bigint THEN (SELECT max(place) FROM unkeyed) END) AS until
),
fit AS MATERIALIZED (
    SELECT c.*, row_number() OVER (ORDER BY named.n, c.sort, c.id) AS n
    FROM (
        SELECT l.key, l.id, 0::bigint AS token, l.turn AS sort, l.turn, NULL::bigint AS gate FROM looked AS l WHERE l.turn <= l.now AND NOT (SELECT is_full FROM room)
        UNION ALL
        SELECT l.key, m.id, 0, l.now, l.now, NULL
        FROM looked AS l CROSS JOIN LATERAL (
            SELECT m.id, m.visible_at FROM punctual.message AS m
            WHERE m.topic = l.topic AND m.key = l.key AND m.place < :held_place: ORDER BY m.topic, m.key, m.place, m.arrival
            OFFSET 1 LIMIT greatest(0, least($5::bigint, l.room) - 1)
        ) AS m
        WHERE l.turn <= l.now AND coalesce(l.room > 1, true) AND m.visible_at <= l.now AND $13::text[] IS NULL AND NOT (SELECT is_full FROM room)
        UNION ALL
        SELECT '', u.id, u.token, u.place, NULL, NULL FROM (SELECT * FROM unkeyed UNION ALL SELECT * FROM unkeyed_named) AS u WHERE NOT (SELECT is_full FROM room)
        UNION ALL
        SELECT l.key, l.id, l.token, l.visible_at, CASE WHEN l.key > '' THEN least(l.place - :held_place:, (SELECT now FROM t)) END, l.gate
        FROM lapsed AS l WHERE coalesce(l.opens <= (SELECT now FROM t), true)
    ) AS c
    LEFT JOIN named ON named.id = c.id
    WHERE (c.sort <= coalesce((SELECT until FROM read), c.sort) OR $12::bigint < (SELECT now FROM t)) AND ($13::text[] IS NULL OR named.n IS NOT NULL)
    ORDER BY n
),
got AS MATERIALIZED (
    SELECT m.place, m.id, m.visible_at, m.size, fit.n, fit.turn, fit.key, fit.token, fit.gate, m.undeliverable
    FROM fit CROSS JOIN LATERAL (
        SELECT m.ctid AS place, m.id, m.visible_at, coalesce(octet_length(m.body), 0) AS size, :must_end: AS undeliverable
        FROM punctual.message AS m
        WHERE m.topic = (SELECT number FROM t) AND m.id = fit.id AND m.key = fit.key AND m.token = fit.token AND coalesce(m.visible_at <= (SELECT now FROM t), false)
        FOR UPDATE SKIP LOCKED
    ) AS m
    LIMIT (SELECT most FROM room)
),
