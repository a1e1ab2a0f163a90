-- registry keeps the names of all topics, each with the version that its creation began with. A
-- deletion takes a name out only if nobody has begun to make the topic anew. It has no prelude. A
-- copy that comes too late changes nothing.
--
-- KEYS  1 topics: sorted set of names by version
-- ARGV  1 lower bound of the clock, in ms
--       2 how many steps of the clock the caller knows of, which does not matter here
--       3 seconds, 4 microseconds: the time for tests, empty for that of the server
--       5 'add', 'remove', 'list' or 'since'; 6 the name
--       7 the version that is created, or deleted, or the least one to list; 8 the deadline, in ms
-- Reply {now, 1000 times ARGV 2, names}: names for 'list' and 'since' alone
local s, us = ARGV[3], ARGV[4]
if s == '' then
  local t = redis.call('TIME')
  s, us = t[1], t[2]
end
local now = math.max(tonumber(ARGV[1]), tonumber(s) * 1000 + math.floor(tonumber(us) / 1000))
if ARGV[5] == 'list' then return {now, 1000 * ARGV[2], redis.call('ZRANGE', KEYS[1], 0, -1)} end
if ARGV[5] == 'since' then return {now, 1000 * ARGV[2], redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[7], '+inf')} end
if now > tonumber(ARGV[8]) then return redis.error_reply('PUNCTUAL_LATE ' .. string.format('%.0f', now) .. ' ' .. ARGV[2]) end
if ARGV[5] == 'add' then
  redis.call('ZADD', KEYS[1], 'GT', ARGV[7], ARGV[6])
elseif tonumber(redis.call('ZSCORE', KEYS[1], ARGV[6]) or 'inf') <= tonumber(ARGV[7]) then
  redis.call('ZREM', KEYS[1], ARGV[6])
end
return {now, 1000 * ARGV[2]}
