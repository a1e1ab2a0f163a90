-- Keeps sweeps from removing the messages of deleted topics until the transaction ends, so that
-- whoever deletes a topic can count them.
-- Locks: a shared advisory lock. It waits for a sweep to end that removes some just now.
SELECT pg_advisory_xact_lock_shared($1::integer, -1)
