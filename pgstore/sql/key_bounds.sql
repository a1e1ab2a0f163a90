-- Gives topic $1 the bounds of its keys: so many leases at once, and a lease in $3 microseconds, of
-- which $4 may begin at once.
-- Locks: its row, which topic_lock.sql has locked in the same transaction.
UPDATE punctual.topic SET key_leases = $2::integer, key_gap = $3::bigint, key_at_once = $4::bigint WHERE number = $1::integer
