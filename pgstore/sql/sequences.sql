-- Reads the greatest number of a topic, and the last one that their sequence has given. It locks
-- nothing.
SELECT (SELECT coalesce(max(t.number), 0)::bigint FROM punctual.topic AS t),
       coalesce(pg_sequence_last_value(pg_get_serial_sequence('punctual.topic', 'number')::regclass), 0)
