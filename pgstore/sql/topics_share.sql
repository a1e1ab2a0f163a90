-- Keeps topics from being deleted until the transaction ends, also those that do not exist. It takes shared
-- advisory locks, which wait for a deletion and for nothing else.
SELECT count(pg_advisory_xact_lock_shared($1::integer, h.key))
FROM (SELECT DISTINCT hashtext(name) AS key FROM unnest($2::text[]) AS n (name) ORDER BY 1) AS h
