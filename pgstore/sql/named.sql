-- Reads the numbers of the topics of the messages that are named, in the order in which messages
-- are locked. Included in others as :named:. It locks nothing.
SELECT t.number, i.topic, i.id
FROM unnest($1::text[], $2::text[]) AS i (topic, id)
     CROSS JOIN LATERAL (SELECT t.number FROM punctual.topic AS t WHERE t.name = i.topic OFFSET 0) AS t
ORDER BY t.number, i.id COLLATE "C"
