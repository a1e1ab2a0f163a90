-- Reads the clock. It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT micros FROM clock
