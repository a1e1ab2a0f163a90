-- layout returns the settings of a partition as they are stored.
--
-- KEYS  of a partition
-- ARGV  none of its own
-- Reply {now, micros, version, newest token, version that all partitions have, field, value ...}:
--       the fields of g but for those of which every partition has its own, and in partition 0 a
--       field for each companion: '@' and its name
local OWN = {version = true, spread = true, clock = true, token = true, gone = true, lengths = true, confirmed = true, event_home = true, stepped = true, moving = true, gate = true, arrivals = true, walk = true, swept = true}
local out = reply(cfg.token, 0)
local all = call('HGETALL', G)
for i = 1, #all, 2 do
  if all[i] == 'spread' then
    out[5] = whole(all[i + 1], 'spread')
  elseif not OWN[all[i]] then
    out[#out + 1] = all[i]
    out[#out + 1] = all[i + 1]
  end
end
return out
