-- finished returns the finished record of an ID.
--
-- KEYS  of a partition
-- ARGV  3 ID
-- Reply {now, micros, version, record}; nothing after version if there is no record. A record may
--       be past its retention and not yet deleted: the caller compares
local raw = H and call('HGET', H, ARGV[3])
if not raw then return reply() end
return reply(raw)
