-- Gives the messages of topic $1 that have no lease their places in their keys anew, after in_order
-- has changed. It reads all messages of the topic that are not dead, also those with a lease, so
-- that it waits for a transaction that gives a lease back by the earlier setting. Locks: the
-- messages, in no order.
UPDATE punctual.message AS m
SET place = CASE WHEN m.token <> 0 THEN m.place WHEN (SELECT t.in_order FROM punctual.topic AS t WHERE t.number = $1::integer) THEN m.first_due ELSE m.due END
WHERE m.topic = $1::integer AND m.place IS NOT NULL AND m.key > ''
