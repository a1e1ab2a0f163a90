-- The column of version 5: the block of a message's attributes (storekit.Attributes). No statement looks into it.
-- Locks: message, for a moment, since no row is written. It waits for transactions under way, and others wait behind it.

ALTER TABLE punctual.message ADD COLUMN attributes bytea; -- NULL: none, or those of a message that a program of version 3 or 4 pushed: see remember
