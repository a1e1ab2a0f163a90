-- Which line of changes a session writes: the timeline and the system identifier of its server. A
-- promotion begins another timeline, and a server to which logical replication or pg_upgrade has
-- brought the tables has another identifier. Included elsewhere as :line:.
(substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/' || (SELECT c.system_identifier FROM pg_control_system() AS c))
