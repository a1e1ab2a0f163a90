-- Gives the settings $1 of a transaction of the caller's the values $2 that they had before
-- plan_within.sql. It locks nothing.
SELECT set_config(s.name, s.was, true) FROM unnest($1::text[], $2::text[]) AS s (name, was)
