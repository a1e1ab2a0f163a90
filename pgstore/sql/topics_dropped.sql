-- Reads which deleted topics may still have rows. It locks nothing.
SELECT number FROM punctual.dropped_topic
