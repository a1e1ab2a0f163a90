-- Removes topics that topic_create.sql has made in the same transaction to prove that there were none.
-- Locks: their rows, which nobody else sees.
DELETE FROM punctual.topic WHERE name = ANY ($1::text[])
