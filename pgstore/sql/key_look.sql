-- Has claims look at all keys of topic number $4 that have messages, after their bounds have
-- changed. A key that was full may have no row that says when its last lease began. It reads all
-- messages of the topic that are not dead.
-- Locks: nothing but what it inserts.
WITH clock AS MATERIALIZED (:clock:)
INSERT INTO punctual.key (topic, key, at, opened)
SELECT m.topic, m.key, clock.micros / 1000, max(m.leased_at) FILTER (WHERE m.place >= :held_place:)
FROM punctual.message AS m CROSS JOIN clock
WHERE m.topic = $4::integer AND m.place IS NOT NULL AND m.key > ''
GROUP BY m.topic, m.key, clock.micros
