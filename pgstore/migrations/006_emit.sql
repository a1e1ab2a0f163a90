-- The column of version 6: of which events of its messages a topic tells.
-- Locks: topic, for a moment, since no row is written. It waits for transactions under way, and others wait behind it.

ALTER TABLE punctual.topic ADD COLUMN emit integer NOT NULL DEFAULT 0; -- the bits of punctual.Events
