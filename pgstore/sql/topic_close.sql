-- Waits until no push to a topic is under way, and keeps further ones waiting until the transaction ends.
-- Locks: an exclusive advisory lock of the topic's name.
SELECT pg_advisory_xact_lock($1::integer, hashtext($2::text))
