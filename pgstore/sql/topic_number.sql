-- Reads the number of topic $1. It locks nothing.
SELECT number FROM punctual.topic WHERE name = $1::text
