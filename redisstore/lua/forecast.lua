-- forecast counts the messages of a topic by due time.
--
-- KEYS  of a partition
-- ARGV  4 where the first bucket begins, 5 its width in ms, 6 the number of the
--       first bucket to count (from 0), 7 the number of the one behind the last, 8 how many
--       buckets there are in all
-- Reply {now, micros, version, overdue, beyond, count ...}: only up to the last bucket that
--       holds anything
local step, first, last, all = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local begin = tonumber(ARGV[4])
local overdue = call('ZCOUNT', T, '-inf', int(begin)) + call('ZCARD', L)
local beyond = call('ZCOUNT', T, int(begin + all * step), '+inf')
local out = reply(overdue, beyond)
local final = tonumber(call('ZRANGE', T, -1, -1, 'WITHSCORES')[2] or -NEVER)
for i = first, last - 1 do
  local from = begin + i * step
  if from > final then break end
  if i == 0 then from = from + 1 end -- what is due now is overdue
  out[#out + 1] = call('ZCOUNT', T, int(from), int(begin + (i + 1) * step - 1))
end
return out
