-- stats counts the messages of a partition.
--
-- KEYS  of a partition
-- ARGV  none of its own
-- Reply {now, micros, version, scheduled, ready, leased, dead, next due};
--       nothing behind version if there is no such topic. next due is NEVER when there is none.
if not cfg.version then return reply() end
local due = call('ZCOUNT', T, '-inf', int(now))
local scheduled = call('ZCARD', T) - due
local lapsed = call('ZRANGEBYSCORE', L, '-inf', int(now))
local leased = call('ZCARD', L) - #lapsed
local first = call('ZRANGE', T, 0, 0, 'WITHSCORES')
local next_due = tonumber(first[2] or NEVER)
for i = 1, #lapsed, 500 do
  local some = {}
  for j = i, math.min(i + 499, #lapsed) do some[#some + 1] = lapsed[j] end
  for _, st in pairs(states(some)) do
    if st then next_due = math.min(next_due, st.due) end
  end
end
local dead = call('ZCOUNT', D, '(' .. int(gone), '+inf')
return reply(scheduled, due + #lapsed, leased, dead, next_due)
