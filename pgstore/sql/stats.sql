-- Counts the messages of topic $4, whose number is $5, or of each topic when both are NULL. It
-- reads all of them once, and locks nothing. The number is an argument so that the server can
-- estimate how many messages the topic has, and choose how to read them.
WITH clock AS MATERIALIZED (:clock:),
counts AS (
    SELECT m.topic,
           count(*) FILTER (WHERE m.visible_at > (SELECT micros / 1000 FROM clock) AND m.token = 0) AS scheduled,
           count(*) FILTER (WHERE m.visible_at <= (SELECT micros / 1000 FROM clock)) AS ready,
           count(*) FILTER (WHERE m.visible_at > (SELECT micros / 1000 FROM clock) AND m.token <> 0) AS leased,
           count(*) FILTER (WHERE t.dead_retention = 0 AND m.died_at IS NOT NULL
                               OR m.died_at + t.dead_retention > (SELECT micros / 1000 FROM clock)) AS dead,
           min(m.due) FILTER (WHERE (m.visible_at <= (SELECT micros / 1000 FROM clock) OR m.visible_at IS NOT NULL AND m.token = 0)
                                AND (m.key IS NULL OR m.key = '' OR m.place >= :held_place:)) AS next_due
    FROM punctual.message AS m JOIN punctual.topic AS t ON t.number = m.topic
    WHERE $5::integer IS NULL OR m.topic = $5::integer
    GROUP BY m.topic
),
waiting AS (:waiting:)
SELECT t.name, t.settings, coalesce(c.scheduled, 0), coalesce(c.ready, 0), coalesce(c.leased, 0), coalesce(c.dead, 0), least(c.next_due, w.turn),
       coalesce(w.n, 0)
FROM punctual.topic AS t LEFT JOIN counts AS c ON c.topic = t.number LEFT JOIN waiting AS w ON w.topic = t.number AND t.keyed
WHERE $4::text IS NULL OR t.name = $4::text
ORDER BY t.name
