-- Gives a topic other settings.
-- Locks: its row, which topic_lock.sql has locked in the same transaction.
UPDATE punctual.topic
SET settings = $2::text, lease = $3::bigint, max_attempts = $4::integer, dedupe_window = $5::bigint, dead_retention = $6::bigint,
    push_paused = $7::boolean, delivery_paused = $8::boolean, finished_retention = $9::bigint, emit = $10::integer, max_leases = $11::integer,
    keyed = $12::boolean, in_order = $13::boolean
WHERE number = $1::integer
