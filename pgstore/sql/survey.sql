-- Counts the messages of each topic, and those due between the edges $4 in ms. The latter it counts
-- for all topics together and for each of the $5 topics with most live messages, without the topics
-- named in $6. It reads all messages, and locks nothing. A row about a topic has its name and
-- counts. A row about a step has the name of its topic, NULL for all topics, the step and the
-- number. Step -1 has the messages that are ready, -2 those that are leased, and 0 those due before
-- the first edge.
WITH clock AS MATERIALIZED (:clock:),
counted AS MATERIALIZED (
    SELECT m.topic,
           CASE WHEN m.visible_at <= (SELECT micros / 1000 FROM clock) THEN -1
                WHEN m.token <> 0 THEN -2
                ELSE width_bucket(m.visible_at, $4::bigint[]) END AS step,
           count(*) AS n, min(m.due) FILTER (WHERE m.key IS NULL OR m.key = '' OR m.place >= :held_place:) AS due
    FROM punctual.message AS m
    WHERE m.visible_at IS NOT NULL
    GROUP BY 1, 2
),
live AS MATERIALIZED (
    SELECT topic, sum(n) FILTER (WHERE step >= 0) AS scheduled, sum(n) FILTER (WHERE step = -1) AS ready, sum(n) FILTER (WHERE step = -2) AS leased,
           min(due) FILTER (WHERE step <> -2) AS next_due, sum(n) AS n
    FROM counted
    GROUP BY topic
),
dead AS MATERIALIZED (
    SELECT m.topic, count(*) AS n
    FROM punctual.message AS m JOIN punctual.topic AS t ON t.number = m.topic
    WHERE m.died_at IS NOT NULL AND (t.dead_retention = 0 OR m.died_at + t.dead_retention > (SELECT micros / 1000 FROM clock))
    GROUP BY m.topic
),
waiting AS (:waiting:),
largest AS MATERIALIZED (
    SELECT t.number, t.name, live.n
    FROM live JOIN punctual.topic AS t ON t.number = live.topic
    WHERE t.name <> ALL ($6::text[])
    ORDER BY live.n DESC, t.name
    LIMIT $5::integer
)
SELECT clock.micros, t.name, t.settings, coalesce(live.scheduled, 0)::bigint, coalesce(live.ready, 0)::bigint, coalesce(live.leased, 0)::bigint,
       coalesce(dead.n, 0)::bigint, least(live.next_due, w.turn), coalesce(w.n, 0), NULL::integer, NULL::bigint, NULL::bigint AS size
FROM clock CROSS JOIN punctual.topic AS t LEFT JOIN live ON live.topic = t.number LEFT JOIN dead ON dead.topic = t.number
     LEFT JOIN waiting AS w ON w.topic = t.number
UNION ALL
SELECT clock.micros, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, c.step, sum(c.n)::bigint, NULL
FROM clock CROSS JOIN counted AS c JOIN punctual.topic AS t ON t.number = c.topic
WHERE t.name <> ALL ($6::text[])
GROUP BY clock.micros, c.step
UNION ALL
SELECT clock.micros, l.name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, c.step, c.n, l.n::bigint
FROM clock CROSS JOIN largest AS l JOIN counted AS c ON c.topic = l.number
ORDER BY size DESC NULLS FIRST, name
