-- configure stores the settings of a topic in a partition, and creates it there if need be.
--
-- KEYS  of a partition; 11 when partition 0 of a companion comes into being: g of partition 0 of
--       the topic that it belongs to
-- ARGV  3 the version that must be the latest here, or empty: any below the new one; 4 the new
--       version; 5 number of the partition; 6 a token above which all further ones must be; 7 '1'
--       to publish a notification; 8 with KEYS 11: the version that the topic must have there, else
--       empty; 9 with KEYS 11: the field that names the companion there; 10 fields of g, with
--       spaces between, that name the topics of the groups, which must be there; then pairs of
--       field and value for g
-- Reply {now, micros, version, 1 if they were stored}
local new = tonumber(ARGV[4])
local fits = cfg.latest < new
if ARGV[3] ~= '' then fits = cfg.latest == tonumber(ARGV[3]) end
-- A companion has as many partitions as its topic. That stays true because it comes into being only
-- while the topic is there, in the version that told how many, and because delete.lua deletes no
-- topic that has a companion.
local parent = ARGV[8] ~= '' and KEYS[11]
if parent then
  local of = call('HMGET', parent, 'version', 'lease')
  fits = fits and of[2] and tonumber(of[1]) == tonumber(ARGV[8])
end
for field in string.gmatch(ARGV[10], '%S+') do
  fits = fits and call('HEXISTS', G, field) == 1 -- otherwise delete.lua has come between
end
if not fits then
  local out = reply(0)
  keep(out, false)
  return out
end
if cfg.version then make_room() end -- but not to create a topic, so that a server out of memory refuses that
if not g[3] then cfg.token = tonumber(ARGV[5]) end
raise_token(tonumber(ARGV[6]))
-- gone is stored so that dead messages past the old retention do not come back with a longer new
-- one.
local fields = {'gone', int(gone), 'version', int(new), 'token', int(cfg.token)}
for i = 11, #ARGV, 2 do
  fields[#fields + 1], fields[#fields + 2] = ARGV[i], ARGV[i + 1]
  -- settle_clock sweeps, and with the old value 0 it might remove the new field.
  if ARGV[i] == 'finished_retention' then g[10] = ARGV[i + 1] end
end
call('HSET', G, unpack(fields))
if keyed.names then
  local old, pieces = keyed.own, 4
  keyed.own = keyed.new(keyed.names, T, G)
  if old.bounds ~= keyed.own.bounds then keyed.own.begin_walk(old.in_order ~= keyed.own.in_order) end
  while pieces > 0 and keyed.own.walking and keyed.own.walk(states) do pieces = pieces - 1 end
end
-- A slower rate may have left the gate farther ahead than the new one can bring it.
local rate = call('HMGET', G, 'rate_interval', 'rate_at_once', 'gate')
if rate[3] then
  call('HSET', G, 'gate', int(math.min(tonumber(rate[3]), now * 1000 + micros % 1000 + tonumber(rate[1]) * tonumber(rate[2]))))
end
if parent then call('HSET', parent, ARGV[9], '1') end
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
