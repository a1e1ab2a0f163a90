-- The store's clock in microseconds: never behind $1, and $2 in the place of the server's clock in tests. It
-- also raises synchronous_commit to $3 for this transaction, if that is more than the session has.
-- Included in others as :clock:. It locks nothing.
SELECT greatest($1::bigint, coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)) AS micros,
       CASE WHEN current_setting('synchronous_commit') = 'off'
              OR $3::text = 'on' AND current_setting('synchronous_commit') IN ('local', 'remote_write')
            THEN set_config('synchronous_commit', $3::text, true) END AS durable
