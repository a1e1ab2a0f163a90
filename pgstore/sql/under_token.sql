-- Reads which of the messages named have the token given. It locks nothing.
SELECT k.topic, m.id
FROM (SELECT t.number, i.topic, i.id, i.token
      FROM unnest($1::text[], $2::text[], $3::bigint[]) AS i (topic, id, token)
           CROSS JOIN LATERAL (SELECT t.number FROM punctual.topic AS t WHERE t.name = i.topic OFFSET 0) AS t) AS k
     CROSS JOIN LATERAL (
         SELECT m.id FROM punctual.message AS m WHERE m.topic = k.number AND m.id = k.id AND m.token = k.token AND k.token <> 0 OFFSET 0
     ) AS m
