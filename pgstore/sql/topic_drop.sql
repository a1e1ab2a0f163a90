-- Removes topic $4 and its companions. topic_sweep.sql removes the messages, and counts them, when
-- pushes to the topics no longer wait.
-- Locks: the rows of the topics and of their rates.
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
rates AS (DELETE FROM punctual.rate WHERE topic = ANY (ARRAY(SELECT number FROM gone))),
noted AS (INSERT INTO punctual.dropped_topic (number) SELECT number FROM gone)
SELECT clock.micros, gone.number, gone.dead_retention
FROM gone CROSS JOIN clock
