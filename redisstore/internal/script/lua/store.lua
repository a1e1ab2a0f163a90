-- store reads what belongs to the whole store, and makes it if it is not there and the caller asks for that. It has no prelude.
--
-- KEYS  1 store: hash with format, epoch and clock
-- ARGV  1 lower bound of the clock, in ms; 2 seconds, 3 microseconds: the
--       time for tests, empty for that of the server; 4 the epoch to store if there is none,
--       or empty; 5 the format's version; 6 '1' to write the clock down
-- Reply {now, micros, format, epoch}; format and epoch are empty for a store that is not
--       there
local function int(n) return string.format('%.0f', n) end
local got = redis.call('HMGET', KEYS[1], 'format', 'epoch', 'clock')
local s, us = ARGV[2], ARGV[3]
if s == '' then
  local t = redis.call('TIME')
  s, us = t[1], t[2]
end
local now = tonumber(s) * 1000 + math.floor(tonumber(us) / 1000)
local micros = tonumber(us) % 1000
if got[3] and not tonumber(got[3]) then error('PUNCTUAL_CORRUPT field clock of ' .. KEYS[1] .. ' is no number') end
local passed = math.max(tonumber(ARGV[1]), tonumber(got[3] or 0))
if passed > now then
  now, micros = passed, 0
end
if not got[2] and ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'format', ARGV[5], 'epoch', ARGV[4], 'clock', int(now))
  return {now, micros, ARGV[5], ARGV[4]}
end
if ARGV[6] == '1' and got[2] then
  redis.call('HDEL', KEYS[1], '-') -- a server out of memory refuses an addition that comes first
  redis.call('HSET', KEYS[1], 'clock', int(now))
end
return {now, micros, got[1] or '', got[2] or ''}
