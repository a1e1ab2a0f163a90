-- Removes up to $5 finished records of topic $4 that are past their retention.
-- Locks: the rows that it removes; it skips what others have locked.
WITH clock AS MATERIALIZED (:clock:)
DELETE FROM punctual.finished
WHERE ctid = ANY (ARRAY(
    SELECT s.ctid FROM punctual.finished AS s
    WHERE s.topic = $4::integer AND s.forget_at > 0 AND s.forget_at <= (SELECT micros / 1000 FROM clock)
    ORDER BY s.topic, s.forget_at LIMIT $5::bigint FOR UPDATE SKIP LOCKED
))
