-- Removes up to $2 rows of the deleted topic $1. It returns how many, and how many of them were
-- live, or dead and within the retention $3 at time $4. If $5 is not NULL, it removes nothing while
-- somebody deletes a topic and counts its messages (sweep_hold.sql).
-- Locks: the rows that it removes, in the order of topic and ID, and with $5 an advisory lock. It
-- skips rows that others have locked, and so waits for nobody.
WITH gone AS (
    DELETE FROM punctual.message
    WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM punctual.message AS m
        WHERE m.topic = $1::integer AND (SELECT CASE WHEN $5::integer IS NULL THEN true ELSE pg_try_advisory_xact_lock($5::integer, -1) END)
        ORDER BY m.topic, m.id LIMIT $2::bigint FOR UPDATE SKIP LOCKED
    ))
    RETURNING visible_at, died_at
)
SELECT count(*), count(*) FILTER (WHERE visible_at IS NOT NULL OR died_at IS NOT NULL AND ($3::bigint = 0 OR died_at + $3::bigint > $4::bigint))
FROM gone
