-- Has claims look at the keys of the messages with the topics $4 and IDs $5, which the transaction
-- changes or removes next, and notes when a turn of these keys comes at the earliest: now, if a
-- message ends a lease of a key that has as many as it may, or else not before the turn of the
-- message, if it is the first one of its key.
-- Locks: nothing but what it inserts.
WITH clock AS MATERIALIZED (:clock:)
INSERT INTO punctual.key (topic, key, at, opened)
SELECT k.topic, k.key, k.now, max(CASE
    WHEN :key_full: THEN CASE WHEN k.place >= :held_place: THEN k.now END
    WHEN k.place < :held_place: AND NOT EXISTS (
        SELECT FROM punctual.message AS m
        WHERE m.topic = k.topic AND m.key = k.key AND m.place < :held_place: AND (m.place, m.arrival) < (k.place, k.arrival)
    ) THEN least(k.visible_at, k.now) END)
FROM (
    SELECT m.*, (SELECT t.key_leases FROM punctual.topic AS t WHERE t.number = u.topic) AS key_leases, (SELECT micros FROM clock) / 1000 AS now
    FROM unnest($4::integer[], $5::text[]) AS u (topic, id)
         CROSS JOIN LATERAL (
             SELECT m.topic, m.key, m.place, m.arrival, m.visible_at FROM punctual.message AS m
             WHERE m.topic = u.topic AND m.id = u.id AND m.key > '' OFFSET 0
         ) AS m
) AS k
GROUP BY k.topic, k.key, k.now
