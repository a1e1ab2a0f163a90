-- The store's clock in microseconds: never before the first of $1, the latest time that the process
-- has heard, and $2 in the place of the server's clock in tests. The second of $1 is the step of
-- the clock that the process knows of; the time of an earlier step counts for nothing. While the
-- server's clock is more than a millisecond behind, the store's clock pauses at a whole
-- millisecond. The due time of a push without a delay is rounded up to a whole millisecond, so the
-- message is due at once then. The statement also raises synchronous_commit to $3 for this
-- transaction, if that is more than the session has. Included in others as :clock:. It locks
-- nothing.
SELECT CASE WHEN server.micros >= server.bound THEN server.micros
            WHEN server.micros >= server.bound - 1000 THEN server.bound
            ELSE (server.bound + 999) / 1000 * 1000 END AS micros,
       CASE WHEN current_setting('synchronous_commit') = 'off'
              OR $3::text = 'on' AND current_setting('synchronous_commit') IN ('local', 'remote_write')
            THEN set_config('synchronous_commit', $3::text, true) END AS durable
FROM (
    SELECT coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS micros,
           CASE WHEN (SELECT c.steps FROM punctual.clock_step AS c) = ($1::bigint[])[2] THEN ($1::bigint[])[1] ELSE 0 END AS bound
    OFFSET 0
) AS server
