-- The store's clock in microseconds: never before $1, and $2 in the place of the server's clock in tests. While the server's clock is
-- more than a millisecond behind $1, the store's clock pauses at a whole millisecond. The due time of a push without a delay is rounded
-- up to a whole millisecond, so the message is due at once then. The statement also raises synchronous_commit to $3 for this
-- transaction, if that is more than the session has. Included in others as :clock:. It locks nothing.
SELECT CASE WHEN server.micros >= $1::bigint THEN server.micros
            WHEN server.micros >= $1::bigint - 1000 THEN $1::bigint
            ELSE ($1::bigint + 999) / 1000 * 1000 END AS micros,
       CASE WHEN current_setting('synchronous_commit') = 'off'
              OR $3::text = 'on' AND current_setting('synchronous_commit') IN ('local', 'remote_write')
            THEN set_config('synchronous_commit', $3::text, true) END AS durable
FROM (SELECT coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS micros OFFSET 0) AS server
