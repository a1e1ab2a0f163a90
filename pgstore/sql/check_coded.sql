-- Reads what of each message and finished record only this program can read: headers and histories. It locks nothing.
SELECT t.name, m.id, m.headers, m.failures
FROM punctual.topic AS t JOIN punctual.message AS m ON m.topic = t.number
WHERE m.headers IS NOT NULL OR m.failures IS NOT NULL
UNION ALL
SELECT t.name, s.id, NULL, s.failures
FROM punctual.topic AS t JOIN punctual.finished AS s ON s.topic = t.number
WHERE s.failures IS NOT NULL
