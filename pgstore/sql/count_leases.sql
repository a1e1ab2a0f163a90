-- Has the leases of topic $1 count that were given while it was not bounded. It reads all live
-- messages of the topic.
-- Locks: the messages that it changes, in the order of their times.
UPDATE punctual.message AS m SET counted = true
WHERE m.topic = $1::integer AND m.visible_at IS NOT NULL AND m.token <> 0 AND m.counted IS NULL
