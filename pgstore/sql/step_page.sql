-- Reads up to $6 live messages of topic $4 behind the time $5 and the ID $7, in the order of their
-- times. It returns the last one that it has read, and the IDs of those that wait since a time in
-- the future: what they wait for was set while the clock was ahead. It locks nothing.
WITH clock AS MATERIALIZED (:clock:),
page AS MATERIALIZED (
    SELECT m.visible_at, m.id, m.since
    FROM punctual.message AS m
    WHERE m.topic = (SELECT t.number FROM punctual.topic AS t WHERE t.name = $4::text) AND m.visible_at IS NOT NULL
      AND (m.visible_at, m.id) > ($5::bigint, $7::text)
    ORDER BY m.topic, m.visible_at, m.id
    LIMIT $6::bigint
)
SELECT clock.micros, (SELECT max(visible_at) FROM page), (SELECT p.id FROM page AS p ORDER BY p.visible_at DESC, p.id DESC LIMIT 1),
       ARRAY(SELECT p.id FROM page AS p WHERE p.since > clock.micros / 1000)
FROM clock
