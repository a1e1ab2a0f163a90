-- Most looks of claims find nothing. They are answered here, behind start.lua and before all
-- else, which halves what they cost the server. KEYS, ARGV and reply are those of claim.lua. One
-- that was sent before has to leave a receipt, and goes on; so does one in sixteen where
-- something may have been kept long enough, because in an idle topic nobody else lets go of it.
local tidy = (cfg.retention > 0 or cfg.remember > 0) and now % 16 == 0
if cfg.version and not cfg.paused_out and not tidy and ARGV[#ARGV] ~= '1' then
  local t = call('ZRANGE', T, 0, 0, 'WITHSCORES')
  local l = call('ZRANGE', L, 0, 0, 'WITHSCORES')
  local next = math.min(tonumber(t[2] or NEVER), tonumber(l[2] or NEVER))
  if next > now then return reply(next, 0, 0, cmsgpack.pack({}, {}, {})) end
end
