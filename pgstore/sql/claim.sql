-- Leases up to $5 due messages of topic $4, the earliest first, for $6 ms or as long as the topic
-- says. Undeliverable messages, which it must not lease (must_end.sql), it skips and names for
-- endMessages. A lease changes what lifecycle.Lease changes. If all messages that it reads are
-- undeliverable, and $5 is less than 200, undeliverable.sql finds those behind them. The bodies of
-- the messages that it takes have up to $7 bytes in all, unless the first one that is not empty has
-- more. It returns a row for each message that it has leased, or one row without a message. If it
-- saw fewer than it asked for, it also returns when the next message needs attention, if that is
-- within $8 ms. It also returns whether the topic tells of acks, which is NULL where there is no
-- such topic or its delivery is paused. It reads nothing before time $9, the scan start, where the
-- index has the entries of finished messages, and leases nothing after time $12, unless that is
-- NULL. This file is five statements (loadStatements). The lines that end in "free" belong to claim
-- alone, which leases nothing of a topic that is bounded or has keys, and says so. Those that end
-- in "bounded" belong to claim_bounded alone, which leases nothing of any other topic, and must
-- have the lock of claim_lock.sql. Where as many messages have a lease as may (lifecycle.Full), it
-- takes those whose lease has run out, because they have their places. The rate is that of
-- lifecycle.Gate. It returns up to how many it was to lease, whether the topic was full, and, if it
-- saw none because of the bounds, when to ask again. The lines that end in "next" belong to these
-- two alone. Those that end in "named" belong to claim_named and claim_bounded_named alone, which
-- lease only messages with the IDs $13, each named once, in the order of these. They do not say
-- when the next message needs attention. A line that ends in two of the words belongs to what both
-- of them say. claim_keyed is claim_bounded_named for a topic with keys, with the lines that have
-- the word "keyed" and without those that have "unkeyed". turns.sql chooses the messages. It puts
-- one row, or none, in the place of the rows of the table key of each key that it has looked at. It
-- returns when the next message needs attention, but also the first time in the past at which it
-- left something, and the place of each message in the claim with its turn. A key whose first
-- message is locked is looked at again 100 ms later. A change that others commit meanwhile it does
-- not see, and neither the row of the table key that comes with it, so that row stays. Locks: the
-- up to $5 rows that it reads for a lease, or the rows with the IDs. It skips what others have
-- locked. So it waits for nobody but a step of the clock: FOR KEY SHARE, which finds no row, locks
-- the table clock_step against step_lock.sql. claim_bounded also locks the rate, and may wait for a
-- change of that. claim_keyed locks the rows of the table key that it removes, which only it does,
-- and it has the lock of claim_lock.sql as well. Tokens are of epoch $10. A server whose line
-- (line.sql) is not that of the epoch, $11, makes the token NULL, which the table refuses. The
-- table store has both, but is not read here, because its row gets a new version each second, and
-- all versions stay as long as somebody holds a snapshot.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT CASE WHEN NOT (topic.bounded OR topic.keyed) THEN topic.number END AS number, -- free
    SELECT CASE WHEN topic.bounded AND NOT topic.keyed THEN topic.number END AS number, topic.max_leases, -- bounded unkeyed
    SELECT CASE WHEN topic.keyed THEN topic.number END AS number, topic.key_leases, topic.key_gap, topic.key_at_once, topic.max_leases, -- keyed
           rate.gap, rate.at_once, least(rate.gate, clock.micros + rate.at_once * rate.gap) AS gate, -- bounded
           topic.bounded, topic.keyed, topic.max_attempts, clock.micros / 1000 AS now, clock.micros / 1000 + coalesce($6::bigint, topic.lease) AS until,
           topic.emit & 1 <> 0 AS tells
    FROM punctual.topic AS topic CROSS JOIN clock
         LEFT JOIN LATERAL (SELECT r.* FROM punctual.rate AS r WHERE r.topic = topic.number OFFSET 0) AS rate ON true -- bounded
    WHERE topic.name = $4::text AND NOT topic.delivery_paused
      AND NOT EXISTS (SELECT 1 FROM punctual.clock_step AS c WHERE c.steps < 0 FOR KEY SHARE)
),
held AS MATERIALIZED ( -- bounded
    SELECT count(*) AS leases, min(m.visible_at) FILTER (WHERE m.visible_at > (SELECT now FROM t)) AS ends -- bounded
    FROM punctual.message AS m -- bounded
    WHERE m.topic = (SELECT number FROM t WHERE max_leases > 0) AND m.counted AND m.token <> 0 -- bounded
), -- bounded
room AS MATERIALIZED ( -- bounded
    SELECT max_leases > 0 AND leases >= max_leases AS is_full, ends, -- bounded
           least($5::bigint, CASE WHEN leases < max_leases THEN max_leases - leases END, -- bounded
                 at_once - greatest(0, (gate - micros + gap - 1) / gap)) AS most -- bounded
    FROM t CROSS JOIN held CROSS JOIN clock -- bounded
), -- bounded
due AS MATERIALIZED ( -- free
first AS MATERIALIZED ( -- bounded unkeyed
    SELECT m.ctid AS place, m.id, m.visible_at, coalesce(octet_length(m.body), 0) AS size, -- unkeyed
           i.n, -- named unkeyed
           :must_end: AS undeliverable -- unkeyed
    FROM punctual.message AS m -- next unkeyed
    FROM unnest($13::text[]) WITH ORDINALITY AS i (id, n) -- named unkeyed
         CROSS JOIN LATERAL (SELECT m.ctid, m.* FROM punctual.message AS m WHERE m.topic = (SELECT number FROM t) AND m.id = i.id OFFSET 0 FOR UPDATE SKIP LOCKED) AS m -- named unkeyed
    WHERE m.topic = (SELECT number FROM t) AND m.visible_at >= $9::bigint AND m.visible_at <= least((SELECT now FROM t), $12::bigint) -- unkeyed
    ORDER BY m.topic, m.visible_at, m.id -- next unkeyed
    ORDER BY i.n -- named unkeyed
    LIMIT $5::bigint -- free
    LIMIT (SELECT CASE WHEN is_full THEN 0 ELSE most END FROM room) -- bounded unkeyed
    FOR UPDATE OF m SKIP LOCKED -- next unkeyed
), -- unkeyed
lapsed AS MATERIALIZED ( -- bounded unkeyed
    SELECT m.ctid AS place, m.id, m.visible_at, coalesce(octet_length(m.body), 0) AS size, -- bounded unkeyed
           i.n, -- bounded named unkeyed
           :must_end: AS undeliverable -- bounded unkeyed
    FROM punctual.message AS m -- bounded next unkeyed
    FROM unnest($13::text[]) WITH ORDINALITY AS i (id, n) -- bounded named unkeyed
         CROSS JOIN LATERAL (SELECT m.ctid, m.* FROM punctual.message AS m WHERE m.topic = (SELECT number FROM t) AND m.id = i.id OFFSET 0 FOR UPDATE SKIP LOCKED) AS m -- bounded named unkeyed
    WHERE m.topic = (SELECT number FROM t) AND m.counted AND m.token <> 0 AND m.visible_at <= (SELECT now FROM t) -- bounded unkeyed
    ORDER BY m.topic, m.visible_at, m.id -- bounded next unkeyed
    ORDER BY i.n -- bounded named unkeyed
    LIMIT (SELECT CASE WHEN is_full THEN most ELSE 0 END FROM room) -- bounded unkeyed
    FOR UPDATE OF m SKIP LOCKED -- bounded next unkeyed
), -- bounded unkeyed
due AS MATERIALIZED (SELECT * FROM first UNION ALL SELECT * FROM lapsed), -- bounded unkeyed
:turns: -- keyed
due AS MATERIALIZED (SELECT * FROM got), -- keyed
taken AS MATERIALIZED (
    SELECT s.* FROM (SELECT due.*, sum(size) OVER (ORDER BY visible_at, id) - size AS before FROM due) AS s -- next
    SELECT s.* FROM (SELECT due.*, sum(size) OVER (ORDER BY n) - size AS before FROM due) AS s -- named
    WHERE s.before = 0 OR s.before + s.size <= $7::bigint
),
found AS MATERIALIZED (
    SELECT (SELECT count(*) FROM due) AS seen, count(*) AS taken, count(*) FILTER (WHERE NOT undeliverable) AS wanted,
           array_agg(id) FILTER (WHERE undeliverable) AS undeliverable
    FROM taken
),
number AS MATERIALIZED (
    SELECT ($10::bigint << 52) | (nextval('punctual.claim_number') << 12) | (random() * 4095)::bigint AS token
    FROM found
    WHERE found.wanted > 0 AND $11::text = :line:
),
leased AS (
    UPDATE punctual.message AS m
    SET visible_at = (SELECT until FROM t), attempts = m.attempts + 1, token = (SELECT token FROM number),
        counted = true, -- bounded
        place = :held_place: + greatest(0, coalesce(taken.turn, 0)), -- keyed
        leased_at = (SELECT now FROM t), since = (SELECT now FROM t),
        failures = CASE WHEN m.token = 0 THEN m.failures ELSE
            (m.failures || convert_to(m.attempts || ' ' || (SELECT now FROM t) || ' lease ran out', 'UTF8'))[greatest(1, cardinality(m.failures) - 14):] END
    FROM taken
    WHERE NOT taken.undeliverable AND m.ctid = taken.place
    RETURNING taken.visible_at AS before, m.id, m.due, m.first_due, m.created, m.expires, m.drop_expired, m.attempts, m.max_attempts,
              m.headers, m.body, m.failures, m.attributes
              , m.key, taken.n, taken.turn, taken.gate AS key_gate, taken.token = 0 AS new -- keyed
) -- free
), -- bounded
known AS MATERIALIZED ( -- keyed
    SELECT u.key, max(u.rows) AS rows, max(u.at) AS was, max(u.turn) AS turn, max(u.leases) AS leases, -- keyed
           coalesce(bool_or(u.ahead), false) AS ahead, max(u.opened) AS opened, max(u.gate) AS gate, sum(u.n)::bigint AS n, sum(u.new)::bigint AS new -- keyed
    FROM (SELECT key, rows, at, turn, leases, ahead, opened, gate, NULL::bigint AS n, NULL::bigint AS new FROM looked -- keyed
          UNION ALL -- keyed
          SELECT key, NULL, NULL, NULL, NULL, NULL, NULL, max(key_gate), count(*), count(*) FILTER (WHERE new) FROM leased WHERE key > '' GROUP BY key) AS u -- keyed
    GROUP BY u.key -- keyed
), -- keyed
kept AS MATERIALIZED ( -- keyed
    SELECT k.*, a.at, coalesce(k.n IS NULL AND k.rows = 1 AND k.was IS NOT DISTINCT FROM a.at, false) AS same, -- keyed
           CASE WHEN f.is_full THEN t.key_gap > 0 AND (k.n IS NOT NULL OR k.ahead) ELSE k.n IS NOT NULL OR k.turn IS NOT NULL OR k.leases > 0 OR k.ahead END AS stays -- keyed
    FROM known AS k CROSS JOIN t -- keyed
         CROSS JOIN LATERAL (SELECT t.key_leases > 0 AND coalesce(k.leases + coalesce(k.new, 0) >= t.key_leases, false) AS is_full) AS f -- keyed
         CROSS JOIN LATERAL ( -- keyed
             SELECT CASE WHEN k.n IS NOT NULL THEN CASE WHEN NOT f.is_full THEN t.now END -- keyed
                         WHEN k.turn <= t.now AND (SELECT count(*) FROM got) < (SELECT most FROM room) AND k.key IN (SELECT key FROM fit) AND k.key NOT IN (SELECT key FROM got) -- keyed
                         THEN t.now + 100 -- keyed
                         WHEN k.turn <= t.now AND $12::bigint < t.now THEN k.was -- keyed
                         WHEN k.turn IS NOT NULL THEN greatest(k.turn, k.was) -- keyed
                         WHEN k.leases = 0 THEN k.gate / 1000 + 1 END AS at -- keyed
         ) AS a -- keyed
), -- keyed
gone AS ( -- keyed
    DELETE FROM punctual.key WHERE ctid = ANY (ARRAY( -- keyed
        SELECT r.ctid FROM kept AS k CROSS JOIN LATERAL (SELECT r.ctid FROM punctual.key AS r WHERE r.topic = (SELECT number FROM t) AND r.key = k.key OFFSET 0) AS r -- keyed
        WHERE k.rows > 0 AND NOT (k.stays AND k.same))) -- keyed
), -- keyed
stored AS ( -- keyed
    INSERT INTO punctual.key (topic, key, at, opened, gate) -- keyed
    SELECT t.number, k.key, k.at, CASE WHEN k.n IS NULL THEN k.opened ELSE t.now END, -- keyed
           CASE WHEN t.key_gap > 0 THEN CASE WHEN k.n IS NULL THEN k.gate ELSE greatest(clock.micros, coalesce(k.gate, 0)) + k.n * t.key_gap END END -- keyed
    FROM kept AS k CROSS JOIN t CROSS JOIN clock -- keyed
    WHERE k.stays AND NOT k.same -- keyed
), -- keyed
begun AS ( -- bounded
    UPDATE punctual.rate AS r SET gate = greatest(t.gate, clock.micros) + found.wanted * r.gap -- bounded
    FROM t CROSS JOIN clock CROSS JOIN found -- bounded
    WHERE r.topic = t.number AND (found.wanted > 0 OR r.gate > t.gate) -- bounded
) -- bounded
SELECT clock.micros, (SELECT until FROM t), (SELECT token FROM number), found.seen, found.taken,
       found.undeliverable, (SELECT tells FROM t),
       CASE WHEN found.seen < $5::bigint THEN -- next
           (SELECT m.visible_at FROM punctual.message AS m -- next
            WHERE m.topic = (SELECT number FROM t) AND m.visible_at > (SELECT now FROM t) AND m.visible_at <= (SELECT now FROM t) + $8::bigint -- next
            ORDER BY m.topic, m.visible_at, m.id LIMIT 1) -- next
       END, -- next
       CASE WHEN false THEN $8::bigint END, -- named unkeyed
       (SELECT min(n.at) FROM ( -- keyed
            SELECT k.at FROM kept AS k WHERE k.stays -- keyed
            UNION ALL SELECT l.opens FROM lapsed AS l -- keyed
            UNION ALL (SELECT r.at FROM punctual.key AS r WHERE r.topic = (SELECT number FROM t) AND r.at > (SELECT now FROM t) ORDER BY r.topic, r.at, r.number LIMIT 1) -- keyed
            UNION ALL (SELECT m.place FROM punctual.message AS m -- keyed
                       WHERE m.topic = (SELECT number FROM t) AND m.key = '' AND m.place > (SELECT now FROM t) AND m.place < :held_place: -- keyed
                       ORDER BY m.topic, m.key, m.place, m.arrival LIMIT 1) -- keyed
            UNION ALL (SELECT m.visible_at FROM punctual.message AS m -- keyed
                       WHERE m.topic = (SELECT number FROM t) AND m.counted AND m.token <> 0 AND m.visible_at > (SELECT now FROM t) -- keyed
                       ORDER BY m.topic, m.visible_at, m.id LIMIT 1) -- keyed
        ) AS n WHERE n.at > (SELECT now FROM t) AND n.at <= (SELECT now FROM t) + $8::bigint), -- keyed
       l.before, l.id, l.due, l.first_due, l.created, l.expires, l.drop_expired, l.attempts, l.max_attempts,
       l.headers, l.body, l.failures, l.attributes,
       (SELECT bounded FROM t), (SELECT keyed FROM t), $5::bigint, false, NULL::bigint -- free
       (SELECT bounded FROM t), (SELECT keyed FROM t), coalesce(most, $5::bigint), coalesce(is_full, false), -- bounded
       CASE WHEN found.seen = 0 THEN greatest( -- bounded
           CASE WHEN is_full THEN coalesce(ends, now + 1000) END, -- bounded
           CASE WHEN most = 0 THEN (gate - (at_once - 1) * gap + 999) / 1000 END) END -- bounded
       , least((SELECT until FROM read), (SELECT min(f.sort) FROM fit AS f WHERE (SELECT count(*) FROM got) >= (SELECT most FROM room) AND f.id NOT IN (SELECT id FROM got))), l.n, l.turn -- keyed
FROM clock CROSS JOIN found LEFT JOIN leased AS l ON true
     LEFT JOIN (t CROSS JOIN room) ON true -- bounded
