-- Notes that all messages have been carried over step $1 of the clock. It changes nothing after a
-- later step.
-- Locks: the row of the table clock_step.
UPDATE punctual.clock_step SET carried = true WHERE steps = $1::bigint AND NOT carried
