-- Makes topics with default settings, unless they exist.
-- Locks: what it inserts. It waits for another transaction that makes the same topic.
INSERT INTO punctual.topic (name, settings, lease, max_attempts, dedupe_window, dead_retention, push_paused, delivery_paused, finished_retention, emit, max_leases)
SELECT n.name, $2::text, $3::bigint, $4::integer, $5::bigint, $6::bigint, $7::boolean, $8::boolean, $9::bigint, $10::integer, $11::integer
FROM unnest($1::text[]) AS n (name)
WHERE (SELECT t.number FROM punctual.topic AS t WHERE t.name = n.name) IS NULL
ORDER BY n.name
ON CONFLICT (name) DO NOTHING
