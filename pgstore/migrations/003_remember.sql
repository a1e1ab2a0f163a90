-- The column of version 3: for how long the ID of a message is remembered after it finished.
-- Locks: message, for a moment, since no row is written. It waits for transactions under way, and others wait behind it.

ALTER TABLE punctual.message ADD COLUMN remember bigint; -- takes the place of the topic's dedupe_window; NULL: as the topic says
