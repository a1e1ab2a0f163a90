-- Refuses, with a serialization failure, a topic that was deleted since the transaction's snapshot was taken. A transaction that is
-- read committed takes a new snapshot for each statement, and needs none of this.
-- Locks: the rows of topics, against deletion, unless the transaction is read committed.
SELECT number FROM punctual.topic
WHERE name = ANY ($1::text[]) AND current_setting('transaction_isolation') <> 'read committed'
ORDER BY number
FOR KEY SHARE
