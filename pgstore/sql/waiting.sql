-- Counts of each topic the messages that wait for their keys, and finds the first turn of a key. It
-- reads all messages with keys. Included in others as :waiting:. It locks nothing.
SELECT k.topic, sum(k.ready - CASE WHEN l.turn <= l.now THEN 1 ELSE 0 END + CASE WHEN l.opens > l.now THEN k.lapsed ELSE 0 END)::bigint AS n, min(l.turn) AS turn
FROM (
    SELECT m.topic, m.key, count(*) FILTER (WHERE m.place < :held_place: AND m.visible_at <= (SELECT micros / 1000 FROM clock)) AS ready,
           count(*) FILTER (WHERE m.place >= :held_place: AND m.visible_at <= (SELECT micros / 1000 FROM clock)) AS lapsed
    FROM punctual.message AS m
    WHERE m.place IS NOT NULL AND m.key > ''
    GROUP BY 1, 2
) AS k CROSS JOIN LATERAL (:look:) AS l
GROUP BY k.topic
