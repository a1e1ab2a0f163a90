-- Finishes messages of which nothing stays, under their current token: it removes them. It returns
-- how many, and which ones if that is not all. It leaves messages whose ID is to be remembered or
-- whose topic keeps finished records, which are for ack_keep.sql, and those of topics that tell of
-- acks (bit 1 of emit). It also leaves messages under another token, and those that others have
-- locked, or have changed a moment ago so that it cannot see where their rows are.
-- Locks: the rows that it removes, in the order of topic and ID. It skips rows that others have
-- locked. The commit does not wait for the disk, unless $7. If a crash loses an ack, its message is
-- delivered again.
WITH clock AS MATERIALIZED (:clock:),
held AS MATERIALIZED (
    SELECT m.place
    FROM (SELECT t.number, i.id, i.token
          FROM unnest($4::text[], $5::text[], $6::bigint[]) AS i (topic, id, token)
               CROSS JOIN LATERAL (
                   SELECT t.number FROM punctual.topic AS t
                   WHERE t.name = i.topic AND t.emit & 1 = 0 AND t.dedupe_window = 0 AND t.finished_retention = 0 OFFSET 0
               ) AS t
          ORDER BY t.number, i.id COLLATE "C") AS k
         CROSS JOIN LATERAL (
             SELECT m.ctid AS place FROM punctual.message AS m
             WHERE m.topic = k.number AND m.id = k.id AND m.token = k.token AND k.token <> 0 AND m.remember IS NULL
             FOR UPDATE SKIP LOCKED
         ) AS m
),
removed AS (
    DELETE FROM punctual.message WHERE ctid = ANY (ARRAY(SELECT place FROM held))
    RETURNING topic, id
),
number AS MATERIALIZED (SELECT count(*) AS of FROM removed)
SELECT clock.micros, number.of, false, d.topics, d.ids,
       CASE WHEN NOT $7::boolean THEN set_config('synchronous_commit', 'off', true) END
FROM clock CROSS JOIN number LEFT JOIN LATERAL (
    SELECT array_agg((SELECT t.name FROM punctual.topic AS t WHERE t.number = removed.topic)) AS topics, array_agg(removed.id) AS ids FROM removed
) AS d ON number.of < cardinality($5::text[])
