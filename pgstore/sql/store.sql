-- Reads which store this is, how far its clock was, the timeline and the own clock of the server, and the epoch with its timeline. It
-- locks nothing.
SELECT identity::text, clock, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       epoch, timeline
FROM punctual.store
