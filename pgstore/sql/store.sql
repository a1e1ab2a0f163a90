-- Reads which store this is, how far its clock was, and the timeline of the server. It locks nothing.
SELECT identity::text, clock, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) FROM punctual.store
