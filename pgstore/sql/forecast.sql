-- Counts the live messages of topic number $4, or of all topics when that is NULL. It counts them
-- in $7 steps of $6 ms from $5, or from now. Step -1 has those that are overdue or leased, step -2
-- those beyond the last step. It reads all messages that it counts, and locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT clock.micros, c.bucket, count(c.bucket)
FROM clock LEFT JOIN LATERAL (
    SELECT CASE WHEN m.visible_at <= clock.micros / 1000 OR m.token <> 0 THEN -1
                WHEN (m.visible_at - coalesce($5::bigint, clock.micros / 1000)) / $6::bigint >= $7::bigint THEN -2
                ELSE (m.visible_at - coalesce($5::bigint, clock.micros / 1000)) / $6::bigint END AS bucket
    FROM punctual.topic AS t JOIN punctual.message AS m ON m.topic = t.number
    WHERE m.visible_at IS NOT NULL AND ($4::integer IS NULL OR m.topic = $4::integer)
) AS c ON true
GROUP BY clock.micros, c.bucket
