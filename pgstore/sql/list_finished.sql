-- Reads one page of the finished records of topic $4. It reads up to $13 records that are kept
-- until a time from $5 to $6, both included, and that come after time $7 with ID $8. It also reads
-- further ones that are kept until the same time as the last of these, because the index has the
-- records of one time in no order. Of all these it selects those that ended from $9, before $10,
-- with outcome $11 unless that is empty, and returns up to $12. Unless that many come before it,
-- the last record read is returned even if it is not selected, because the next page begins behind
-- it; the last column is true in its row if there may be more records. It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT (SELECT micros FROM clock), s.id, s.outcome, s.ended_at, s.forget_at, s.created, s.first_due, s.due, s.leased_at, s.attempts, s.failures,
       s.selected, s.place = s.records AND s.records >= $13::bigint
FROM (
    SELECT f.*, f.ended_at >= $9::bigint AND f.ended_at < $10::bigint AND ($11::text = '' OR f.outcome = $11::text) AS selected,
           count(*) OVER () AS records,
           row_number() OVER (
ORDER BY f.forget_at, f.id
           ) AS place
    FROM (
        SELECT m.* FROM punctual.finished AS m
        WHERE m.topic = (SELECT t.number FROM punctual.topic AS t WHERE t.name = $4::text) AND m.forget_at > 0
          AND m.forget_at > (SELECT micros / 1000 FROM clock) AND m.forget_at >= $5::bigint AND m.forget_at <= $6::bigint
          AND (m.forget_at, m.id) > ($7::bigint, $8::text)
ORDER BY m.topic, m.forget_at
        FETCH FIRST ($13::bigint) ROWS WITH TIES
    ) AS f
) AS s
WHERE s.selected OR s.place = s.records
ORDER BY s.forget_at, s.id
LIMIT $12::bigint
