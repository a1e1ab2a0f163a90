-- Removes topics that topic_create.sql has made in the same transaction, only to prove that they
-- did not exist.
-- Locks: their rows, which nobody else sees.
DELETE FROM punctual.topic WHERE name = ANY ($1::text[])
