-- Names the server's processes that use tables of the schema $1, but for this one. It locks
-- nothing.
SELECT string_agg(u.name, ', ' ORDER BY u.name)
FROM (SELECT DISTINCT l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') AS name
      FROM pg_locks AS l
           JOIN pg_class AS c ON c.oid = l.relation
           JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = $1::text
           LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
      WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())) AS u
