-- Removes topic $4 and counts the messages that go with it; topic_sweep.sql removes them. The caller gets
-- that count, so the first row is not enough. It is made here, because another process may remove rows as soon as this is committed.
-- It reads them by an index, and pushes to the topic wait for it.
-- Locks: the topic's row.
WITH clock AS MATERIALIZED (:clock:),
gone AS (DELETE FROM punctual.topic WHERE name = $4::text RETURNING number, dead_retention),
noted AS (INSERT INTO punctual.dropped_topic (number) SELECT number FROM gone)
SELECT gone.number,
       (SELECT count(*) FROM punctual.message AS m WHERE m.topic = gone.number AND m.visible_at IS NOT NULL)
     + (SELECT count(*) FROM punctual.message AS m WHERE m.topic = gone.number AND m.died_at IS NOT NULL
          AND (gone.dead_retention = 0 OR m.died_at + gone.dead_retention > clock.micros / 1000))
FROM gone CROSS JOIN clock
