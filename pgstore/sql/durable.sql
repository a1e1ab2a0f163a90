-- Has the commit wait until all that this transaction can have read is durable, because acks do not
-- wait for the disk by themselves. It writes a record to the log that nobody reads, since a
-- transaction that writes nothing waits for nothing. It locks nothing.
WITH clock AS MATERIALIZED (:clock:)
SELECT clock.micros, pg_logical_emit_message(true, 'punctual', '') FROM clock
