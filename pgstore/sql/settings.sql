-- Reads the settings of topic $1. It locks nothing.
SELECT settings FROM punctual.topic WHERE name = $1::text
