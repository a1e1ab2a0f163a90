-- Leases up to $5 due messages of topic $4, the earliest first, for $6 ms or as long as the topic
-- says. Undeliverable messages, which it must not lease (must_end.sql), it skips and names for
-- endMessages. A lease changes what lifecycle.Lease changes. If all messages that it reads are
-- undeliverable, and $5 is less than 200, undeliverable.sql finds those behind them. The bodies of
-- the messages that it takes have up to $7 bytes in all, unless the first one that is not empty has
-- more. It returns a row for each message that it has leased, or one row without a message. If it
-- saw fewer than it asked for, it also returns when the next message needs attention, if that is
-- within $8 ms. It also returns whether the topic tells of acks, which is NULL where there is no
-- such topic or its delivery is paused. It reads nothing before time $9, the scan start, where
-- the index has the entries of finished messages, and leases nothing after time $12, unless that is
-- NULL.
-- Locks: the up to $5 rows that it reads for a lease. It skips what others have locked. So it waits
-- for nobody but a step of the clock: FOR KEY SHARE, which finds no row, locks the table clock_step
-- against step_lock.sql.
-- Tokens are of epoch $10. A server whose line (line.sql) is not that of the epoch, $11, makes the
-- token NULL, which the table refuses. The table store has both, but is not read here, because its
-- row gets a new version each second, and all versions stay as long as somebody holds a snapshot.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT topic.number, topic.max_attempts, clock.micros / 1000 AS now, clock.micros / 1000 + coalesce($6::bigint, topic.lease) AS until,
           topic.emit & 1 <> 0 AS tells
    FROM punctual.topic AS topic CROSS JOIN clock
    WHERE topic.name = $4::text AND NOT topic.delivery_paused
      AND NOT EXISTS (SELECT 1 FROM punctual.clock_step AS c WHERE c.steps < 0 FOR KEY SHARE)
),
due AS MATERIALIZED (
    SELECT m.ctid AS place, m.id, m.visible_at, coalesce(octet_length(m.body), 0) AS size,
           :must_end: AS undeliverable
    FROM punctual.message AS m
    WHERE m.topic = (SELECT number FROM t) AND m.visible_at >= $9::bigint AND m.visible_at <= least((SELECT now FROM t), $12::bigint)
    ORDER BY m.topic, m.visible_at, m.id
    LIMIT $5::bigint
    FOR UPDATE OF m SKIP LOCKED
),
taken AS MATERIALIZED (
    SELECT s.* FROM (SELECT due.*, sum(size) OVER (ORDER BY visible_at, id) - size AS before FROM due) AS s
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
        leased_at = (SELECT now FROM t), since = (SELECT now FROM t),
        failures = CASE WHEN m.token = 0 THEN m.failures ELSE
            (m.failures || convert_to(m.attempts || ' ' || (SELECT now FROM t) || ' lease ran out', 'UTF8'))[greatest(1, cardinality(m.failures) - 14):] END
    FROM taken
    WHERE NOT taken.undeliverable AND m.ctid = taken.place
    RETURNING taken.visible_at AS before, m.id, m.due, m.first_due, m.created, m.expires, m.drop_expired, m.attempts, m.max_attempts,
              m.headers, m.body, m.failures, m.attributes
)
SELECT clock.micros, (SELECT until FROM t), (SELECT token FROM number), found.seen, found.taken,
       found.undeliverable, (SELECT tells FROM t),
       CASE WHEN found.seen < $5::bigint THEN
           (SELECT m.visible_at FROM punctual.message AS m
            WHERE m.topic = (SELECT number FROM t) AND m.visible_at > (SELECT now FROM t) AND m.visible_at <= (SELECT now FROM t) + $8::bigint
            ORDER BY m.topic, m.visible_at, m.id LIMIT 1)
       END,
       l.before, l.id, l.due, l.first_due, l.created, l.expires, l.drop_expired, l.attempts, l.max_attempts,
       l.headers, l.body, l.failures, l.attributes
FROM clock CROSS JOIN found LEFT JOIN leased AS l ON true
