-- Whether message m is ready and waits for its key. Included in others as :waits:. It locks
-- nothing.
coalesce(m.key > '' AND m.visible_at <= (SELECT micros / 1000 FROM clock)
         AND (SELECT CASE WHEN m.place >= :held_place: THEN coalesce(l.opens > l.now, false) ELSE coalesce(l.id <> m.id OR l.turn > l.now, true) END
              FROM (SELECT m.topic, m.key) AS k CROSS JOIN LATERAL (:look:) AS l), false)
