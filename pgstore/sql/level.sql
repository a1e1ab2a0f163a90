-- Has this transaction read committed data, whatever the default of the role, the database or the
-- session is. Under another level a push that waits for a deletion of its topic would go on with a
-- snapshot that still has the topic. Each transaction of the store's own with several statements
-- begins with this one, or with a BEGIN that says the same. SET LOCAL would be a warning where
-- there is no BEGIN; the level ends with the transaction in any case. It must be the first
-- statement. It locks nothing.
SET transaction_isolation TO 'read committed'
