-- Reads which store this is, how far its clock was, the timeline of the server, and the server's own clock. It locks nothing.
SELECT identity::text, clock, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM punctual.store
