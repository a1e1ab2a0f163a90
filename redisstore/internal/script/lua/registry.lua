-- registry keeps the names of all topics, each with the version that its creation began with. A deletion takes
-- a name out only if nobody has begun to make the topic anew. It has no prelude. A copy that comes too late
-- changes nothing.
--
-- KEYS  1 topics: sorted set of names by version
-- ARGV  1 lower bound of the clock, in ms; 2 seconds, 3 microseconds: the time for tests,
--       empty for that of the server; 4 'add', 'remove' or 'list'; 5 the name; 6 the version that is created,
--       or deleted; 7 the deadline, in ms
-- Reply {now, 0, names}: names for 'list' alone
local s, us = ARGV[2], ARGV[3]
if s == '' then
  local t = redis.call('TIME')
  s, us = t[1], t[2]
end
local now = math.max(tonumber(ARGV[1]), tonumber(s) * 1000 + math.floor(tonumber(us) / 1000))
if ARGV[4] == 'list' then return {now, 0, redis.call('ZRANGE', KEYS[1], 0, -1)} end
if now > tonumber(ARGV[7]) then return redis.error_reply('PUNCTUAL_LATE ' .. string.format('%.0f', now)) end
if ARGV[4] == 'add' then
  redis.call('ZADD', KEYS[1], 'GT', ARGV[6], ARGV[5])
elseif tonumber(redis.call('ZSCORE', KEYS[1], ARGV[5]) or 'inf') <= tonumber(ARGV[6]) then
  redis.call('ZREM', KEYS[1], ARGV[5])
end
return {now, 0}
