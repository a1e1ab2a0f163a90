-- Keeps topics from being deleted until the transaction ends, also topics that do not exist yet.
-- From then on the transaction waits for a lock as long as $3 says at most, unless that is NULL.
-- Locks: shared advisory locks, which wait for a deletion and for nothing else. All topics share
-- 1024 of them, so that a transaction with any number of topics leaves room in the server's lock
-- table. A companion has the lock of its topic, because a topic takes its companions along when it
-- is deleted.
SELECT count(pg_advisory_xact_lock_shared($1::integer, h.key)), CASE WHEN $3::text IS NOT NULL THEN set_config('lock_timeout', $3::text, true) END
FROM (SELECT DISTINCT 1 + (hashtext(split_part(name, '@', 1)) & 1023) AS key FROM unnest($2::text[]) AS n (name) ORDER BY 1) AS h
