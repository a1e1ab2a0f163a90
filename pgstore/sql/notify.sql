-- Notifies listening processes that topics have something due soon. Nothing depends on that, so the
-- commit does not wait for the disk.
-- Locks: commits with a notification queue up behind each other on the whole server, which is why a
-- push does not notify by itself.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)
