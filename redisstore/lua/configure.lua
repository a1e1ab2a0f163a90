-- configure stores the settings of a topic in a partition, and creates it there if need be.
--
-- KEYS  of a partition
-- ARGV  4 sender of hints, 5 the version that must be the latest here, or empty: any below the
--       new one; 6 the new version; 7 number of the partition; 8 a token above which all
--       further ones must be; 9 '1' to publish a hint; then pairs of field and value for g
-- Reply {now, micros, version, 1 if they were stored}
local new = tonumber(ARGV[6])
local fits = cfg.latest < new
if ARGV[5] ~= '' then fits = cfg.latest == tonumber(ARGV[5]) end
if not fits then return reply(0) end
if not g[3] then cfg.token = tonumber(ARGV[7]) end
raise_token(tonumber(ARGV[8]))
-- What the old settings have let go does not come back with the new ones.
local fields = {'gone', int(gone), 'version', int(new), 'token', int(cfg.token)}
for i = 10, #ARGV do fields[#fields + 1] = ARGV[i] end
call('HSET', G, unpack(fields))
settle_clock()
if ARGV[9] == '1' then
  earliest = -NEVER
  hint(NEVER, ARGV[4])
end
cfg.version = new
return reply(1)
