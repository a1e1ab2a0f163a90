-- Stores messages with IDs that the store has made, as push.sql does and with its arguments, but
-- without a look whether the IDs are free, so that the insert is cheaper. If an ID is in use after
-- all, the server refuses the statement, and nothing is stored. It returns a row for each topic
-- that exists, with the number of messages that it has stored in all topics. Which ones these are,
-- and when they are due, follows from the topics and the clock.
-- Locks: nothing but what it inserts, in the order of topic and ID.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT number, name, push_paused, emit & 16 <> 0 AS tells FROM punctual.topic WHERE name = ANY ($4::text[])
),
stored AS (
    :insert:
    RETURNING 1
)
SELECT clock.micros, t.number, t.name, t.push_paused, t.tells, (SELECT count(*) FROM stored) FROM clock CROSS JOIN t
