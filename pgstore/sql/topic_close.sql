-- Waits until no push to a topic is under way, and keeps further ones waiting until the transaction ends. The topic shares its lock with
-- others, as topics_share.sql says.
-- Locks: an exclusive advisory lock of the topic's name.
SELECT pg_advisory_xact_lock($1::integer, 1 + (hashtext($2::text) & 1023))
