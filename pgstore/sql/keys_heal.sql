-- Reads up to 1000 keys behind key $5 of topic number $4, and has claims look at those at which
-- none would look (lost.sql). It returns the last key that it has read, NULL if there are no more,
-- and the keys that it has healed. Locks: nothing but what it inserts.
WITH RECURSIVE clock AS MATERIALIZED (:clock:),
behind (topic, key) AS (
    SELECT $4::integer, $5::text COLLATE "C"
    UNION ALL
    SELECT m.topic, m.key
    FROM behind AS b CROSS JOIN LATERAL (
        SELECT m.topic, m.key FROM punctual.message AS m
        WHERE m.place IS NOT NULL AND (m.topic, m.key) > (b.topic, b.key) ORDER BY m.topic, m.key LIMIT 1
    ) AS m
),
page AS MATERIALIZED (SELECT * FROM behind OFFSET 1 LIMIT 1000),
healed AS (
    INSERT INTO punctual.key (topic, key, at)
    SELECT k.topic, k.key, l.now FROM page AS k CROSS JOIN LATERAL (:look:) AS l WHERE k.key > '' AND :lost:
    RETURNING topic, key
)
SELECT clock.micros, p.topic, p.key, ARRAY(SELECT t.name || ' ' || h.key FROM healed AS h JOIN punctual.topic AS t ON t.number = h.topic)
FROM clock LEFT JOIN (SELECT topic, key FROM page ORDER BY topic DESC, key DESC LIMIT 1) AS p ON true
