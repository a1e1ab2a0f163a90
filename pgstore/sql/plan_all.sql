-- Settles how the server reads in a transaction that reads all messages, or all of a topic: as the
-- server finds best for the table as it is now. Many messages are read several times faster from
-- one end of the table to the other than by an index. Such transactions have this statement behind
-- level.sql. It locks nothing.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)
