-- Settles how the server reads messages in this transaction, whatever the server believes about the
-- size of the table: by the index whose order is asked for, with a plan that it makes once and
-- keeps. Otherwise a plan that was made while the table was empty may read all of the table for
-- minutes later on. Transactions of the store's own that read or change messages have this
-- statement behind level.sql or BEGIN, unless they read all messages (plan_all.sql). In a
-- transaction of the caller's plan_within.sql takes its place. It locks nothing.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true), set_config('enable_incremental_sort', 'off', true),
       set_config('jit', 'off', true)
