-- Reads what an administrator should know: what keeps dead rows from being removed, how many
-- connections are in use, and how large the tables are. It locks nothing.
SELECT current_setting('server_version'), current_setting('autovacuum'),
       (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - a.xact_start)), 0)::bigint FROM pg_stat_activity AS a
        WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'),
       (SELECT a.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') FROM pg_stat_activity AS a
        WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
        ORDER BY a.xact_start LIMIT 1),
       (SELECT count(*) FROM pg_prepared_xacts),
       (SELECT count(*) FROM pg_replication_slots WHERE NOT active AND xmin IS NOT NULL),
       current_setting('max_connections')::bigint, (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       coalesce((SELECT s.n_live_tup FROM pg_stat_user_tables AS s WHERE s.schemaname = $1::text AND s.relname = 'message'), 0),
       coalesce((SELECT s.n_dead_tup FROM pg_stat_user_tables AS s WHERE s.schemaname = $1::text AND s.relname = 'message'), 0),
       coalesce(pg_total_relation_size(to_regclass($1::text || '.message')), 0),
       coalesce((SELECT s.n_live_tup FROM pg_stat_user_tables AS s WHERE s.schemaname = $1::text AND s.relname = 'finished'), 0),
       coalesce(pg_total_relation_size(to_regclass($1::text || '.finished')), 0)
