-- Reads the finished record of message $5 of topic $4, unless it is past its retention. It locks
-- nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT clock.micros, s.outcome, s.ended_at, s.forget_at, s.created, s.first_due, s.due, s.leased_at, s.attempts, s.failures
FROM clock CROSS JOIN LATERAL (
    SELECT * FROM punctual.finished AS s
    WHERE s.topic = (SELECT t.number FROM punctual.topic AS t WHERE t.name = $4::text) AND s.id = $5::text OFFSET 0
) AS s
WHERE s.forget_at > clock.micros / 1000
