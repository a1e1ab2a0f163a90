-- spread notes in partition 0 that all partitions have a version of the settings.
--
-- KEYS  of partition 0
-- ARGV  4 sender of hints, 5 the version
-- Reply {now, micros, version}
if cfg.version ~= tonumber(ARGV[5]) then return reply() end
call('HSET', G, 'spread', int(cfg.version))
earliest = -NEVER
hint(NEVER, ARGV[4])
return reply()
