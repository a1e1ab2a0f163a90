-- Begins a new epoch when the server's timeline is another one, as after a promotion.
-- Locks: the only row of store. Processes that see the change together wait for each other.
UPDATE punctual.store SET epoch = epoch + 1, timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
WHERE timeline <> substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
