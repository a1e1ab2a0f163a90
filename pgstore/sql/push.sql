-- Stores those messages whose topic exists and takes pushes and whose ID is free, unless they are
-- due too late. Messages of a topic that tells of pushes (bit 16 of emit) it stores only if $15. It
-- returns a row for each topic that exists, and one for each message that it has stored.
-- push_keyed is this file without the lines that end in "free"; push is it without those that end
-- in "keyed", and stores nothing in topics with keys.
-- Locks: nothing but what it inserts, in the order of topic and ID. Where another transaction has
-- an ID under change it waits for that one, in a transaction of the store's own only as long as
-- topics_share.sql has said.
WITH clock AS MATERIALIZED (:clock:),
t AS MATERIALIZED (
    SELECT number, name, push_paused, emit & 16 <> 0 AS tells, keyed FROM punctual.topic WHERE name = ANY ($4::text[])
),
stored AS (
    :insert: -- free
    :insert_keyed: -- keyed
    ON CONFLICT (topic, id) DO NOTHING
    RETURNING topic, id, due
    , key -- keyed
)
, noted AS ( -- keyed
    INSERT INTO punctual.key (topic, key, at) -- keyed
    SELECT topic, key, min(least(due, (SELECT micros FROM clock) / 1000)) FROM stored WHERE key > '' GROUP BY 1, 2 -- keyed
) -- keyed
SELECT clock.micros, t.number, t.name, t.push_paused, t.tells, t.keyed, NULL, NULL FROM clock CROSS JOIN t
UNION ALL
SELECT clock.micros, stored.topic, NULL, NULL, NULL, NULL, stored.id, stored.due FROM clock CROSS JOIN stored
