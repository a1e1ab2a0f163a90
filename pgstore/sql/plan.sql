-- Settles how the server reads messages in this transaction, whatever it believes about the size of the table. It
-- reads by the index whose order is asked for, with the plan that it has made before. A plan that was made while the
-- table was empty may read all of it for minutes later on. Transactions of the store that read or change messages have it after
-- level.sql, unless they count all (plan_all.sql); in one of the caller's plan_within.sql takes its place. It locks nothing.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true), set_config('enable_incremental_sort', 'off', true),
       set_config('jit', 'off', true)
