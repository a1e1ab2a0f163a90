-- When something of topic t, which has keys, next needs attention, from scan_start on up to until:
-- a key, a message without a key, or one whose lease runs out. Included in others as :keyed_due:.
-- It locks nothing.
least((SELECT r.at FROM punctual.key AS r
       WHERE r.topic = t.number AND r.at >= n.scan_start AND r.at <= n.until ORDER BY r.topic, r.at, r.number LIMIT 1),
      (SELECT m.place FROM punctual.message AS m
       WHERE m.topic = t.number AND m.key = '' AND m.place >= n.scan_start AND m.place <= n.until ORDER BY m.topic, m.key, m.place, m.arrival LIMIT 1),
      (SELECT m.visible_at FROM punctual.message AS m
       WHERE m.topic = t.number AND m.counted AND m.token <> 0 AND m.visible_at >= n.scan_start AND m.visible_at <= n.until
       ORDER BY m.topic, m.visible_at, m.id LIMIT 1))
