-- store reads what belongs to the whole store, and makes it if it is not there and the caller asks
-- for that. It has no prelude.
--
-- KEYS  1 store: hash with format, epoch, clock and the steps of the clock
-- ARGV  1 lower bound of the clock, in ms; 2 how many steps of the clock the caller knows of
--       3 seconds, 4 microseconds: the time for tests, empty for that of the server
--       5 the epoch to store if there is none, or empty; 6 the format's version
--       7 '1' to write the clock down
--       8 a time, in ms, to which the clock is to step back if it is ahead, or empty. It steps only
--       if the caller knows of all steps, so that of several callers one makes the step
-- Reply {now, micros, format, epoch, last, stepped}: micros has 1000 times the number of steps
--       added. format and epoch are empty for a store that is not there. last is the last step,
--       'from to' in ms, empty if there was none or a failover has lost it. stepped is 1 if this
--       call made it
local KEPT = 64 -- steps that are remembered, for partitions that nobody has asked since
local function int(n) return string.format('%.0f', n) end
local got = redis.call('HMGET', KEYS[1], 'format', 'epoch', 'clock', 'steps')
local s, us = ARGV[3], ARGV[4]
if s == '' then
  local t = redis.call('TIME')
  s, us = t[1], t[2]
end
local now = tonumber(s) * 1000 + math.floor(tonumber(us) / 1000)
local micros = tonumber(us) % 1000
local function number(i, field)
  if got[i] and not tonumber(got[i]) then error('PUNCTUAL_CORRUPT field ' .. field .. ' of ' .. KEYS[1] .. ' is no number') end
  return tonumber(got[i] or 0)
end
local clock, known, stored = number(3, 'clock'), tonumber(ARGV[2]), number(4, 'steps')
local steps, stepped = math.max(known, stored), 0
-- Times from before a step do not count. A failover may have lost a step that the caller knows of.
local passed = math.max(known == steps and tonumber(ARGV[1]) or 0, stored == steps and clock or 0)
if ARGV[8] ~= '' and known == steps and passed > tonumber(ARGV[8]) then
  steps, stepped = steps + 1, 1
end
local last = stepped == 1 and int(passed) .. ' ' .. ARGV[8] or steps > 0 and redis.call('HGET', KEYS[1], 'step:' .. int(steps)) or ''
if stepped == 1 then passed = tonumber(ARGV[8]) end
if passed > now then
  now, micros = passed, 0
end
micros = micros + 1000 * steps
local begins = not got[2] and ARGV[5] ~= ''
if begins then
  redis.call('HSET', KEYS[1], 'format', ARGV[6], 'epoch', ARGV[5], 'clock', int(now))
  got[1], got[2] = ARGV[6], ARGV[5]
elseif got[2] and (ARGV[7] == '1' or stepped == 1) then
  redis.call('HDEL', KEYS[1], '-') -- a server out of memory refuses an addition that comes first
  redis.call('HSET', KEYS[1], 'clock', int(now))
  if steps > 0 then redis.call('HSET', KEYS[1], 'steps', int(steps)) end
  if stepped == 1 then
    redis.call('HDEL', KEYS[1], 'step:' .. int(steps - KEPT))
    redis.call('HSET', KEYS[1], 'step:' .. int(steps), last)
  end
end
return {now, micros, got[1] or '', got[2] or '', last, stepped}
