-- Steps the store's clock from $1 microseconds back to the server's clock, or to $2 in tests,
-- unless another process has stepped it since step $3, or the server's clock is not behind. It
-- returns a row if it has.
-- Locks: the rows of the tables clock_step and store. Processes that step at the same time wait for
-- each other in step_lock.sql.
WITH server AS MATERIALIZED (
    SELECT coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS micros
),
stepped AS (
    UPDATE punctual.clock_step AS c
    SET steps = c.steps + 1, step_from = greatest($1::bigint, s.clock), step_to = server.micros, carried = false
    FROM server CROSS JOIN punctual.store AS s
    WHERE c.steps = $3::bigint AND server.micros < greatest($1::bigint, s.clock)
    RETURNING c.steps, c.step_from, c.step_to
),
kept AS (
    UPDATE punctual.store AS s SET clock = stepped.step_to, steps = stepped.steps FROM stepped
)
SELECT steps, step_from, step_to FROM stepped
