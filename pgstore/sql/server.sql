-- Reads the version of the server, whether it takes changes, and the settings that decide about
-- durability. It locks nothing.
SELECT current_setting('server_version_num')::integer, pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), current_setting('transaction_read_only')
