-- Counts the messages of topic $4, or of each topic when that is NULL. It reads all that are live, and locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT t.name, t.settings, live.scheduled, live.ready, live.leased, dead.dead, live.next_due
FROM clock CROSS JOIN punctual.topic AS t
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE m.visible_at > clock.micros / 1000 AND m.token = 0) AS scheduled,
           count(*) FILTER (WHERE m.visible_at <= clock.micros / 1000) AS ready,
           count(*) FILTER (WHERE m.visible_at > clock.micros / 1000 AND m.token <> 0) AS leased,
           min(m.due) FILTER (WHERE m.visible_at <= clock.micros / 1000 OR m.token = 0) AS next_due
    FROM punctual.message AS m WHERE m.topic = t.number AND m.visible_at IS NOT NULL
) AS live
CROSS JOIN LATERAL (
    SELECT count(*) AS dead FROM punctual.message AS m
    WHERE m.topic = t.number AND m.died_at IS NOT NULL
      AND (t.dead_retention = 0 OR m.died_at + t.dead_retention > clock.micros / 1000)
) AS dead
WHERE $4::text IS NULL OR t.name = $4::text
ORDER BY t.name
