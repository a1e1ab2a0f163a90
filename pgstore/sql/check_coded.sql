-- Reads what of each message only this program can read: its headers and its history. It locks nothing.
SELECT t.name, m.id, m.headers, m.failures
FROM punctual.topic AS t JOIN punctual.message AS m ON m.topic = t.number
WHERE m.headers IS NOT NULL OR m.failures IS NOT NULL
