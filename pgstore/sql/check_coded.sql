-- Reads those parts of messages and finished records whose contents only this program can check:
-- headers, histories and attributes. It locks nothing.
SELECT t.name, m.id, m.headers, m.failures, m.attributes
FROM punctual.topic AS t JOIN punctual.message AS m ON m.topic = t.number
WHERE m.headers IS NOT NULL OR m.failures IS NOT NULL OR m.attributes IS NOT NULL
UNION ALL
SELECT t.name, s.id, NULL, s.failures, NULL
FROM punctual.topic AS t JOIN punctual.finished AS s ON s.topic = t.number
WHERE s.failures IS NOT NULL
