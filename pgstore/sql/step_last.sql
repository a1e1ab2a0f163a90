-- Returns a row if step $1 of the clock is the last one. No other step is made until the
-- transaction ends.
-- Locks: the row of the table clock_step, shared.
SELECT steps FROM punctual.clock_step WHERE steps = $1::bigint FOR KEY SHARE
