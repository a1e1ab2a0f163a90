-- Proves that there is no message with one of these IDs, where the transaction's snapshot shows
-- none. It stores a row that is no message; absent_back.sql removes it in the same transaction.
-- Where another transaction has stored the ID since the snapshot, the server refuses that with a
-- serialization failure.
-- Locks: the IDs, in the order of topic and ID, until the transaction ends. It waits for a
-- transaction that has one under change.
INSERT INTO punctual.message (topic, id, due, first_due, created)
SELECT k.number, k.id, 0, 0, 0
FROM (:named:) AS k
ON CONFLICT (topic, id) DO NOTHING
