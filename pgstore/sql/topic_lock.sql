-- Reads a topic that is to be changed.
-- Locks: its row.
SELECT number, settings FROM punctual.topic WHERE name = $1::text FOR UPDATE
