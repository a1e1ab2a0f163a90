-- Stores messages with IDs that the store has made, as push.sql does and with its arguments, but
-- without a look whether the IDs are free, so that the insert is cheaper. If an ID is in use after
-- all, the server refuses the statement, and nothing is stored. It returns a row for each topic
-- that exists, with the number of messages that it has stored in all topics. Which ones these are,
-- and when they are due, follows from the topics and the clock. push_new_keyed is to it what
-- push_keyed is to push.sql.
-- Locks: nothing but what it inserts, in the order of topic and ID.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT number, name, push_paused, emit & 16 <> 0 AS tells, keyed FROM punctual.topic WHERE name = ANY ($4::text[])
),
stored AS (
    :insert: -- free
    :insert_keyed: -- keyed
    RETURNING 1 -- free
    RETURNING topic, key, due -- keyed
)
, noted AS ( -- keyed
    INSERT INTO punctual.key (topic, key, at) -- keyed
    SELECT topic, key, min(least(due, (SELECT micros FROM clock) / 1000)) FROM stored WHERE key > '' GROUP BY 1, 2 -- keyed
) -- keyed
SELECT clock.micros, t.number, t.name, t.push_paused, t.tells, t.keyed, (SELECT count(*) FROM stored) FROM clock CROSS JOIN t
