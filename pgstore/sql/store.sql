-- Reads which store this is, how far its clock was, the timeline and the own clock of the server, the epoch with its timeline, and how
-- often the clock has stepped, with the last step. It locks nothing.
SELECT s.identity::text, s.clock, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       s.epoch, s.timeline, s.steps, c.step_from, c.step_to, c.carried
FROM punctual.store AS s CROSS JOIN punctual.clock_step AS c
