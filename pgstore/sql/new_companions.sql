-- Reads the greatest number of a topic, and the names of the companions whose number is above $1.
-- It counts nothing, and locks nothing.
SELECT (SELECT coalesce(max(t.number), 0)::bigint FROM punctual.topic AS t),
       (SELECT coalesce(array_agg(t.name), '{}')::text[] FROM punctual.topic AS t WHERE t.number > $1::bigint AND strpos(t.name, '@') > 0)
