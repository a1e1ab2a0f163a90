-- Reads which transaction this is, as plan_within.sql did, and its isolation level. If the two read
-- different transactions, each statement is a transaction of its own. It locks nothing.
SELECT pg_backend_pid() || ' ' || extract(epoch FROM transaction_timestamp()), current_setting('transaction_isolation')
