-- Reads the names of topics that begin with $1 and end with $2, sorted. It counts nothing, and
-- locks nothing. No name has a ~ in it or a greater byte.
SELECT t.name FROM punctual.topic AS t
WHERE t.name >= $1::text AND t.name <= $1::text || '~' AND right(t.name, length($2::text)) = $2::text
ORDER BY t.name
