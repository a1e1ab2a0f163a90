-- Reads the topic $1, which is to be changed.
-- Locks: the topic's row, but not against transactions that only keep it from being deleted
-- (topics_keep.sql). Otherwise it would wait for callers' transactions that have pushed to the
-- topic and stay open.
SELECT number, settings, bounded FROM punctual.topic WHERE name = $1::text FOR NO KEY UPDATE
