-- finished returns the story of a message that has finished.
--
-- KEYS  of a partition
-- ARGV  3 ID
-- Reply {now, micros, version, story}; nothing behind version if none is kept of the ID. Its time may be over
local raw = H and call('HGET', H, ARGV[3])
if not raw then return reply() end
return reply(raw)
