-- forecast counts the messages of a partition by due time.
--
-- KEYS  of a partition
-- ARGV  3 where the first bucket begins, 4 its width in ms, 5 the number of the
--       first bucket to count (from 0), 6 the number of the one after the last, 7 how many
--       buckets there are in all, 8 the time up to which a due message counts as overdue and in no
--       bucket, not before 3
-- Reply {now, micros, version, overdue, beyond, count ...}: only up to the last bucket that
--       holds anything. All leased messages count as overdue
local step, first, last, all = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local begin, ahead = tonumber(ARGV[3]), tonumber(ARGV[8]) + 1
local overdue = call('ZCOUNT', T, '-inf', int(ahead - 1)) + call('ZCARD', L)
local beyond = call('ZCOUNT', T, int(math.max(begin + all * step, ahead)), '+inf')
local out = reply(overdue, beyond)
local final = tonumber(call('ZRANGE', T, -1, -1, 'WITHSCORES')[2] or -NEVER)
for i = first, last - 1 do
  local from = begin + i * step
  if from > final then break end
  out[#out + 1] = call('ZCOUNT', T, int(math.max(from, ahead)), int(begin + (i + 1) * step - 1))
end
return out
