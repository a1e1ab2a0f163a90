-- Gives topic $4 a rate of a lease in $5 microseconds, of which $6 may begin at once, or none if $5
-- is 0. A gate that is farther ahead than that allows is cut (lifecycle.Gate).
-- Locks: the row of the rate.
WITH clock AS MATERIALIZED (:clock:),
gone AS (DELETE FROM punctual.rate WHERE topic = $4::integer AND $5::bigint = 0)
INSERT INTO punctual.rate AS r (topic, gap, at_once) SELECT $4::integer, $5::bigint, $6::bigint WHERE $5::bigint > 0
ON CONFLICT (topic) DO UPDATE
SET gap = EXCLUDED.gap, at_once = EXCLUDED.at_once,
    gate = least(r.gate, (SELECT micros FROM clock) + EXCLUDED.at_once * EXCLUDED.gap)
