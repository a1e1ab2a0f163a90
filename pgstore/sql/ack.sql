-- Finishes messages under their current token. It removes them, or keeps their IDs as remembered,
-- and saves the finished records of topics that keep some. It returns how many messages it has
-- finished, which ones if that is not all, and whether a topic has max_leases, so that claims may
-- wait for room there. It leaves messages of topics that tell of acks (bit 1 of emit) or have keys,
-- those under another token, and those that others have locked, or have changed a moment ago so
-- that it cannot see where their rows are. ack_keyed is this file without the lines that end in
-- "free", and finishes messages of topics with keys as well; ack is it without those that end in
-- "keyed". Locks: the messages that it finishes, and then their finished records, in the order of
-- topic and ID. It skips messages that others have locked. The commit does not wait for the disk,
-- unless $7 or an ID is to be remembered. If a crash loses an ack, its message is delivered again.
WITH clock AS MATERIALIZED (:clock:),
held AS MATERIALIZED (
    SELECT m.at, coalesce(m.remember, k.dedupe_window) AS dedupe_window, k.finished_retention, k.max_leases
         , k.number AS topic, m.key, k.key_leases, k.keyed -- keyed
    FROM (SELECT t.number, t.dedupe_window, t.finished_retention, t.max_leases, i.id, i.token
                 , t.keyed, t.key_leases -- keyed
          FROM unnest($4::text[], $5::text[], $6::bigint[]) AS i (topic, id, token)
               CROSS JOIN LATERAL (
                   SELECT t.number, t.dedupe_window, t.finished_retention, t.max_leases
                          , t.keyed, t.key_leases -- keyed
                   FROM punctual.topic AS t
                   WHERE t.name = i.topic AND t.emit & 1 = 0
                         AND NOT t.keyed -- free
                   OFFSET 0
               ) AS t
          ORDER BY t.number, i.id COLLATE "C") AS k
         CROSS JOIN LATERAL (
             SELECT m.ctid AS at, m.remember
                    , m.key -- keyed
             FROM punctual.message AS m
             WHERE m.topic = k.number AND m.id = k.id AND m.token = k.token AND k.token <> 0
             FOR UPDATE SKIP LOCKED
         ) AS m
),
saved AS (
    INSERT INTO punctual.finished (topic, id, outcome, ended_at, forget_at, created, first_due, due, leased_at, attempts, failures)
    SELECT m.topic, m.id, 'acked', clock.micros / 1000, clock.micros / 1000 + held.finished_retention,
           m.created, m.first_due, m.due, m.leased_at, m.attempts, m.failures
    FROM held JOIN punctual.message AS m ON m.ctid = held.at CROSS JOIN clock
    WHERE held.finished_retention > 0
    ON CONFLICT (topic, id) DO UPDATE SET :finished_columns:
),
removed AS (
    DELETE FROM punctual.message WHERE ctid = ANY (ARRAY(SELECT at FROM held WHERE dedupe_window = 0))
    RETURNING topic, id
),
remembered AS (
    UPDATE punctual.message AS m
    SET forget_at = (SELECT micros FROM clock) / 1000
            + coalesce(m.remember, (SELECT t.dedupe_window FROM punctual.topic AS t WHERE t.number = m.topic)),
        since = (SELECT micros FROM clock) / 1000, visible_at = NULL, token = 0, cancelled = false, headers = NULL, body = NULL, failures = NULL, attributes = NULL
        , place = NULL -- keyed
    WHERE m.ctid = ANY (ARRAY(SELECT at FROM held WHERE dedupe_window > 0))
    RETURNING m.topic, m.id
),
noted AS ( -- keyed
    INSERT INTO punctual.key (topic, key, at, opened) -- keyed
    SELECT k.topic, k.key, k.now, CASE WHEN k.key_leases = 1 OR :key_full: THEN k.now END -- keyed
    FROM (SELECT DISTINCT topic, key, key_leases, (SELECT micros FROM clock) / 1000 AS now FROM held WHERE key > '') AS k -- keyed
), -- keyed
done AS MATERIALIZED (SELECT * FROM removed UNION ALL SELECT * FROM remembered),
number AS MATERIALIZED (SELECT count(*) AS of FROM done)
SELECT clock.micros, number.of, d.topics, d.ids,
       CASE WHEN NOT $7::boolean AND NOT EXISTS (SELECT FROM held WHERE dedupe_window > 0) THEN set_config('synchronous_commit', 'off', true) END,
       EXISTS (SELECT FROM held WHERE max_leases > 0) -- free
       EXISTS (SELECT FROM held WHERE max_leases > 0 OR keyed) -- keyed
FROM clock CROSS JOIN number LEFT JOIN LATERAL (
    SELECT array_agg((SELECT t.name FROM punctual.topic AS t WHERE t.number = done.topic)) AS topics, array_agg(done.id) AS ids FROM done
) AS d ON number.of < cardinality($5::text[])
