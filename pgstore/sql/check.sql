-- Reads all messages of each topic, counts those that are live or dead, and names up to 100 of the
-- topic that no sound store has. It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT t.name, live.live, dead.dead, (
    SELECT array_agg(p.id || ' ' || p.problem) FROM (
        SELECT m.id, CASE
            WHEN num_nonnulls(m.visible_at, m.died_at, m.forget_at) <> 1 THEN 'is not one of live, dead and finished'
            WHEN m.died_at IS NOT NULL AND m.reason IS NULL THEN 'is dead without a reason'
            WHEN m.visible_at IS NULL AND m.token <> 0 THEN 'is not live and has a lease'
            WHEN m.visible_at IS NOT NULL AND m.reason IS NOT NULL THEN 'is live and has a reason of death'
            WHEN m.visible_at <> m.due AND m.token = 0 THEN 'waits for another time than its due time'
            WHEN m.cancelled AND m.token = 0 THEN 'has no lease and is to be cancelled after it'
            WHEN m.token <> 0 AND t.max_leases > 0 AND m.counted IS NULL THEN 'has a lease that does not count'
            WHEN m.visible_at IS NOT NULL AND t.keyed <> (m.key IS NOT NULL) THEN 'has a key where there are none, or none where there are'
            WHEN (m.place IS NOT NULL) <> (m.key IS NOT NULL AND m.visible_at IS NOT NULL) THEN 'has a place in its key, or none, against its state'
            WHEN (m.place >= :held_place:) <> (m.token <> 0) THEN 'has a place in its key that is not that of its lease'
            WHEN m.place < :held_place: AND m.place <> CASE WHEN t.in_order AND m.key > '' THEN m.first_due ELSE m.due END THEN 'has a place in its key that is not that of its due time'
            WHEN m.attempts < 0 THEN 'has a negative number of attempts'
            WHEN m.token >> 52 > (SELECT epoch FROM punctual.store) THEN 'has a token of an epoch to come'
            WHEN m.token >> 52 = (SELECT epoch FROM punctual.store) AND (m.token >> 12) & 1099511627775 > (SELECT last_value FROM punctual.claim_number)
                THEN 'has a token that was never given'
            END AS problem
        FROM punctual.message AS m WHERE m.topic = t.number
    ) AS p WHERE p.problem IS NOT NULL LIMIT 100)
FROM clock CROSS JOIN punctual.topic AS t
CROSS JOIN LATERAL (SELECT count(*) AS live FROM punctual.message AS m WHERE m.topic = t.number AND m.visible_at IS NOT NULL) AS live
CROSS JOIN LATERAL (
    SELECT count(*) AS dead FROM punctual.message AS m
    WHERE m.topic = t.number AND m.died_at IS NOT NULL
      AND (t.dead_retention = 0 OR m.died_at + t.dead_retention > clock.micros / 1000)
) AS dead
ORDER BY t.name
