-- Notifies listening processes that topics have something due soon. Nothing depends on it, so it waits for no disk.
-- Locks: commits with a notification queue up behind each other in the whole cluster, which is why it is not part of a push.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)
