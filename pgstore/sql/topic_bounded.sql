-- Says whether topic $1 is bounded.
-- Locks: its row.
UPDATE punctual.topic SET bounded = $2::boolean WHERE name = $1::text
