-- Has the claims of a topic that is bounded take effect one after the other: the statement that
-- follows sees what all before it have leased. It waits for $3 at most.
-- Locks: an exclusive advisory lock of the topic's name $2.
SELECT set_config('lock_timeout', $3::text, true), pg_advisory_xact_lock($1::integer, 1025 + (hashtext($2::text) & 1073741823))
