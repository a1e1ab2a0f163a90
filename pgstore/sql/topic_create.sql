-- Makes topics with default settings, unless they exist: with keys, and the settings $14, those
-- that $15 names, and companions of topics that have keys.
-- Locks: what it inserts. It waits for another transaction that makes the same topic.
INSERT INTO punctual.topic (name, settings, lease, max_attempts, dedupe_window, dead_retention, push_paused, delivery_paused, finished_retention, emit, max_leases, keyed, in_order)
SELECT n.name, CASE WHEN n.keyed THEN $14::text ELSE $2::text END, $3::bigint, $4::integer, $5::bigint, $6::bigint, $7::boolean, $8::boolean, $9::bigint,
       $10::integer, $11::integer, n.keyed OR $12::boolean, $13::boolean
FROM (
    SELECT n.name, coalesce((SELECT t.keyed FROM punctual.topic AS t WHERE t.name = split_part(n.name, '@', 1)), n.name = ANY ($15::text[]), false) AS keyed
    FROM unnest($1::text[]) AS n (name)
) AS n
WHERE (SELECT t.number FROM punctual.topic AS t WHERE t.name = n.name) IS NULL
ORDER BY n.name
ON CONFLICT (name) DO NOTHING
