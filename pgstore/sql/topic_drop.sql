-- Removes topic $4 and its companions, and counts the messages that go with each of them; topic_sweep.sql removes the messages. They are
-- counted here, because another process may remove them as soon as this is committed. The count reads them by an index, and pushes to
-- the topics wait for that long.
-- Locks: the rows of the topics.
WITH clock AS MATERIALIZED (:clock:),
gone AS (
    DELETE FROM punctual.topic
    WHERE number = ANY (ARRAY(
        SELECT t.number FROM punctual.topic AS t WHERE t.name = $4::text
        UNION ALL
        SELECT t.number FROM punctual.topic AS t WHERE t.name > $4::text || '@' AND t.name < $4::text || '@~'
    ))
    RETURNING number, dead_retention
),
noted AS (INSERT INTO punctual.dropped_topic (number) SELECT number FROM gone)
SELECT gone.number,
       (SELECT count(*) FROM punctual.message AS m WHERE m.topic = gone.number AND m.visible_at IS NOT NULL)
     + (SELECT count(*) FROM punctual.message AS m WHERE m.topic = gone.number AND m.died_at IS NOT NULL
          AND (gone.dead_retention = 0 OR m.died_at + gone.dead_retention > clock.micros / 1000))
FROM gone CROSS JOIN clock
