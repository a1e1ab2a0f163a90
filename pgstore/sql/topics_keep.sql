-- Has the server refuse, with a serialization failure, a topic that was deleted since the
-- transaction took its snapshot. A transaction that is read committed takes a new snapshot for each
-- statement, and does not need that.
-- Locks: the rows of topics, against deletion and in the order of their numbers, unless the
-- transaction is read committed.
SELECT t.number
FROM (SELECT t.number
      FROM unnest($1::text[]) AS n (name)
           CROSS JOIN LATERAL (SELECT t.number FROM punctual.topic AS t WHERE t.name = n.name OFFSET 0) AS t
      WHERE current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
      ORDER BY t.number) AS k
     CROSS JOIN LATERAL (SELECT t.number FROM punctual.topic AS t WHERE t.number = k.number FOR KEY SHARE) AS t
