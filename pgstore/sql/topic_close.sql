-- Waits until no push to a topic or to its companions is under way, and keeps further pushes
-- waiting until the transaction ends. The topic shares its lock with others, as topics_share.sql
-- says.
-- Locks: an exclusive advisory lock of the topic's name.
SELECT pg_advisory_xact_lock($1::integer, 1 + (hashtext(split_part($2::text, '@', 1)) & 1023))
