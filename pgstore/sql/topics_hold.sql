-- Keeps topics from being deleted, as topics_share.sql does, unless the transaction is read
-- committed. It runs before topics_keep.sql, which locks rows of topics. Without it a deletion that
-- waits for such a row would hold the advisory lock, and a later push of the transaction would wait
-- for that lock.
-- Locks: shared advisory locks, or nothing in a transaction that is read committed.
SELECT count(pg_advisory_xact_lock_shared($1::integer, h.key))
FROM (SELECT DISTINCT 1 + (hashtext(split_part(name, '@', 1)) & 1023) AS key FROM unnest($2::text[]) AS n (name)
      WHERE current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') ORDER BY 1) AS h
