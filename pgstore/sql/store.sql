-- Reads which store this is, how far its clock was, the line (line.sql) and the own clock of the
-- server, the epoch with its line, and how often the clock has stepped, with the last step. It
-- locks nothing.
SELECT s.identity::text, s.clock, :line:, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       s.epoch, s.timeline || '/' || s.system, s.steps, c.step_from, c.step_to, c.carried
FROM punctual.store AS s CROSS JOIN punctual.clock_step AS c
