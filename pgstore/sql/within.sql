-- Reads which transaction this is, as plan_within.sql did, and its isolation level. Where each statement is a transaction of its own the
-- two differ. It locks nothing.
SELECT pg_backend_pid() || ' ' || extract(epoch FROM transaction_timestamp()), current_setting('transaction_isolation')
