-- delete takes a topic out of a partition with all that belongs to it, in one step. What stays
-- is the version, so that nothing brings the topic back that has not seen it go; the clock; and
-- the token counter, so that tokens grow when the topic comes into being again.
--
-- KEYS  of a partition
-- ARGV  4 the version that the topic is deleted from, 5 '1' in partition 0, which comes last and
--       gets the next version; 6 number of the partition; 7 a token above which all further
--       ones must be
-- Reply {now, micros, version, 1 if it was done, how many messages, newest token}: not done when
--       the version has changed
local latest, last = tonumber(ARGV[4]), ARGV[5] == '1'
if cfg.latest > latest or last and cfg.version ~= latest then return reply(0, 0, 0) end
if not g[3] then cfg.token = tonumber(ARGV[6]) end
raise_token(tonumber(ARGV[7]))
local n = call('ZCARD', T) + call('ZCARD', L) + call('ZCOUNT', D, '(' .. int(gone), '+inf')
call('UNLINK', T, L, D, F, M, S, G)
if last then latest = latest + 1 end
call('HSET', G, 'version', int(latest), 'token', int(cfg.token), 'clock', int(now))
cfg.version, cfg.latest = nil, latest
return reply(1, n, cfg.token)
