-- Looks at the key k: rows is how many the table key has, and at the earliest time there, leases is
-- how many there are, up to the bound, opens is when the rate lets the next one begin, room is how
-- many may begin now, and turn is when the turn of the message id comes, the first one without a
-- lease; NULL if there is none, or no room. It is memstore/key.go in SQL. Included in others as
-- :look:. It locks nothing.
SELECT t.now, s.rows, s.at, s.opened, s.gate, t.key_gap > 0 AND s.gate > t.micros AS ahead, o.opens, f.leases, h.id,
       CASE WHEN h.id IS NOT NULL AND (t.key_leases = 0 OR f.leases < t.key_leases) THEN greatest(h.visible_at, s.opened, o.opens) END AS turn,
       least(CASE WHEN t.key_leases > 0 THEN t.key_leases - f.leases END,
             CASE WHEN t.key_gap > 0 THEN t.key_at_once - greatest(0, (coalesce(s.gate, 0) - t.micros + t.key_gap - 1) / t.key_gap) END) AS room
FROM (
    SELECT topic.key_leases, topic.key_gap, topic.key_at_once, clock.micros, clock.micros / 1000 AS now
    FROM punctual.topic AS topic CROSS JOIN clock WHERE topic.number = k.topic OFFSET 0
) AS t
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, min(r.at) AS at, max(least(r.opened, t.now)) FILTER (WHERE r.opened IS NOT NULL) AS opened,
           max(least(r.gate, t.micros + t.key_at_once * t.key_gap)) FILTER (WHERE r.gate IS NOT NULL) AS gate
    FROM punctual.key AS r WHERE r.topic = k.topic AND r.key = k.key
) AS s
CROSS JOIN LATERAL (SELECT CASE WHEN t.key_gap > 0 THEN (s.gate - (t.key_at_once - 1) * t.key_gap + 999) / 1000 END AS opens) AS o
CROSS JOIN LATERAL (
    SELECT count(*) AS leases FROM (
        SELECT 1 FROM punctual.message AS m
        WHERE m.topic = k.topic AND m.key = k.key AND m.place >= :held_place: LIMIT greatest(t.key_leases, 1)
    ) AS m
) AS f
LEFT JOIN LATERAL (
    SELECT m.id, m.visible_at FROM punctual.message AS m
    WHERE m.topic = k.topic AND m.key = k.key AND m.place < :held_place: ORDER BY m.topic, m.key, m.place, m.arrival LIMIT 1
) AS h ON true
