-- Settles the same as plan.sql for the statements that follow in a transaction of the caller's. It
-- returns what each setting was there, for plan_back.sql, and which transaction this is, for
-- within.sql. It locks nothing.
SELECT s.name, s.was, set_config(s.name, s.value, true), pg_backend_pid() || ' ' || extract(epoch FROM transaction_timestamp())
FROM (
    SELECT v.name, v.value, current_setting(v.name) AS was
    FROM (VALUES ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'),
                 ('enable_sort', 'off'), ('enable_incremental_sort', 'off'), ('jit', 'off')) AS v (name, value)
    OFFSET 0
) AS s
