-- Reads the topic $1, which is to be changed.
-- Locks: the topic's row.
SELECT number, settings FROM punctual.topic WHERE name = $1::text FOR UPDATE
