-- Most claims find nothing. They are answered here, behind start.lua and before all else, which halves what they cost
-- the server. KEYS, ARGV and reply are those of claim.lua. A claim that was sent before has to leave a record, and
-- goes on. So do some others, and one that is told to, where something may have been kept long enough: nobody else
-- removes it.
local tidy = now % 256 == 0 or (g[7] ~= '0' or g[8] ~= '0' or g[10]) and (now % 16 == 0 or ARGV[6] == '1')
local usual = flags == 0 and g[4] and g[6] ~= '1' and not tidy
local next_leased
if usual then
  local next_due = call('ZRANGE', T, 0, 0, 'WITHSCORES')[2]
  next_leased = call('ZRANGE', L, 0, 0, 'WITHSCORES')[2]
  next_due, next_leased = next_due and tonumber(next_due) or NEVER, next_leased and ceil(next_leased) or NEVER
  if next_due > now and next_leased > now then
    return {now, micros, tonumber(g[1]), math.min(next_due, next_leased), 0, 0, 0, {}, {}, {}}
  end
end
