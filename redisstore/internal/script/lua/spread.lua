-- spread stores in partition 0 that all partitions have a version of the settings.
--
-- KEYS  of partition 0
-- ARGV  3 the version
-- Reply {now, micros, version}
local out = reply()
if cfg.version ~= tonumber(ARGV[3]) then
  keep(out, false)
  return out
end
make_room()
call('HSET', G, 'spread', int(cfg.version))
earliest = -NEVER
notify(NEVER)
keep(out, true)
return out
