-- The fast path of a claim that finds nothing due, as most do. It follows start.lua and comes
-- before all else, which halves what such a claim costs the server. KEYS, ARGV and reply are those
-- of claim.lua.
--
-- A claim that was sent before takes the general path, because it has to leave a record. In a topic
-- in which nothing changes, claims alone delete what is past its retention. So with tidy a claim
-- takes the general path, which sweeps. tidy is true in one ms of 256; where the topic has a
-- retention or a duplicate window, it is also true in one ms of 16, and when the caller asks for
-- it.
local tidy = now % 256 == 0 or (g[7] ~= '0' or g[8] ~= '0' or g[10] or keyed.names) and (now % 16 == 0 or ARGV[6] == '1')
local fast = flags == 0 and g[4] and g[6] == '0' and not tidy
local next_leased
if fast and not keyed.names then
  local next_due = call('ZRANGE', T, 0, 0, 'WITHSCORES')[2]
  next_leased = call('ZRANGE', L, 0, 0, 'WITHSCORES')[2]
  next_due, next_leased = next_due and tonumber(next_due) or NEVER, next_leased and ceil(next_leased) or NEVER
  if next_due > now and next_leased > now then
    return {now, micros, tonumber(g[1]), math.min(next_due, next_leased), 0, 0, 0, {}, {}, {}}
  end
end
