-- The table of finished records under its name of version 4. No row is written.
-- Locks: story, for a moment. It waits for transactions under way that use it, and others wait behind it.

ALTER TABLE punctual.story RENAME TO finished;
ALTER INDEX punctual.story_pkey RENAME TO finished_pkey;
ALTER INDEX punctual.story_forget RENAME TO finished_forget;
