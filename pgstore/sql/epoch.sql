-- Begins a new epoch if the server's timeline is not that of the epoch, as after a promotion.
-- Locks: the only row of the table store. Processes that notice this at the same time wait for each other, and only the first of them
-- begins an epoch.
UPDATE punctual.store SET epoch = epoch + 1, timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
WHERE timeline <> substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
