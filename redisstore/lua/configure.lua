-- configure stores the settings of a topic, and creates it if need be.
--
-- KEYS  of a partition
-- ARGV  4 sender of hints, 5 the version that the settings are made from, 0 for a topic
--       that does not exist; then pairs of field and value for g
-- Reply {now, micros, exists, 1 if they were stored, 0 if the version is another}
if (cfg.version or 0) ~= tonumber(ARGV[5]) then return reply(0) end
-- What the old settings have let go does not come back with the new ones.
local fields = {'gone', int(gone), 'version', int(tonumber(ARGV[5]) + 1)}
for i = 6, #ARGV do fields[#fields + 1] = ARGV[i] end
call('HSET', G, unpack(fields))
settle_clock()
earliest = -NEVER
hint(NEVER, ARGV[4])
cfg.version = tonumber(ARGV[5]) + 1
return reply(1)
