-- configure stores the settings of a topic in a partition, and creates it there if need be.
--
-- KEYS  of a partition
-- ARGV  3 the version that must be the latest here, or empty: any below the
--       new one; 4 the new version; 5 number of the partition; 6 a token above which all
--       further ones must be; 7 '1' to publish a notification; then pairs of field and value for g
-- Reply {now, micros, version, 1 if they were stored}
local new = tonumber(ARGV[4])
local fits = cfg.latest < new
if ARGV[3] ~= '' then fits = cfg.latest == tonumber(ARGV[3]) end
if not fits then
  local out = reply(0)
  keep(out, false)
  return out
end
if cfg.version then make_room() end -- not to create a topic
if not g[3] then cfg.token = tonumber(ARGV[5]) end
raise_token(tonumber(ARGV[6]))
-- gone is stored so that dead messages past the old retention do not come back with a longer new one.
local fields = {'gone', int(gone), 'version', int(new), 'token', int(cfg.token)}
for i = 8, #ARGV, 2 do
  fields[#fields + 1], fields[#fields + 2] = ARGV[i], ARGV[i + 1]
  -- settle_clock sweeps; by the old value 0 it would remove the new field.
  if ARGV[i] == 'finished_retention' then g[10] = ARGV[i + 1] end
end
call('HSET', G, unpack(fields))
if not cfg.version then call('PERSIST', G) end -- a deletion has left g with a time to live
g[1] = new
settle_clock()
if ARGV[7] == '1' then
  earliest = -NEVER
  notify(NEVER)
end
cfg.version = new
local out = reply(1)
keep(out, true)
return out
