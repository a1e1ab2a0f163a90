-- Reads which deleted topics still have rows. It locks nothing.
SELECT number FROM punctual.dropped_topic
