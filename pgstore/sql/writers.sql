-- Reads which other transactions may have written messages, or locked some, and are not over: those
-- with a lock on the table message as a statement takes it that writes or locks its rows. It reads
-- the server's list of locks, and locks nothing itself.
SELECT DISTINCT l.virtualtransaction
FROM pg_locks AS l
WHERE l.locktype = 'relation' AND l.relation = 'punctual.message'::regclass AND l.mode IN ('RowShareLock', 'RowExclusiveLock')
  AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()) AND l.pid IS DISTINCT FROM pg_backend_pid()
