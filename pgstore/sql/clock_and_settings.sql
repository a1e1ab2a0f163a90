-- Reads the clock and the settings of topics. It runs after the statement that locks or stores
-- messages, so that the time is that of the change. It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT clock.micros, t.name, t.settings
FROM clock LEFT JOIN punctual.topic AS t ON t.name = ANY ($4::text[])
