-- delete deletes a topic and all its messages in a partition, in one step. Version, token counter,
-- clock and its steps stay for a day. The version stays so that a call which has not seen the
-- deletion does not bring the topic back. The token counter stays so that tokens grow when the
-- topic is created again. After that day versions and tokens still grow, because they begin with
-- the time.
--
-- KEYS  of a partition; 11 in partition 0 of a companion: g of partition 0 of the topic that it
--       belongs to
-- ARGV  3 the version that the topic is deleted from, 4 '1' in partition 0, which comes last and
--       gets the next version; 5 number of the partition; 6 a token above which all further
--       ones must be; 7 with KEYS 11: the field that names the companion there, else empty; 8 with
--       KEYS 11: the version that the topic must have there, or 0 for any; 9 '1' if no message here
--       may be scheduled, ready or leased
-- Reply {now, micros, version, 1 if it was done, how many messages, newest token}: not done when
--       a version has changed, or there are such messages, and in partition 0 when the topic has a
--       companion
local KEPT_MS = 86400000
local latest, last = tonumber(ARGV[3]), ARGV[4] == '1'
local parent = ARGV[7] ~= '' and KEYS[11]
-- fails for a key of a wrong type, before the first write
local moved = parent and call('HGET', parent, 'version') ~= ARGV[8] and ARGV[8] ~= '0'

-- has_companion reports whether g names a companion, which would be left without its topic.
local function has_companion()
  for _, field in ipairs(call('HKEYS', G)) do
    if string.byte(field) == 64 then return true end -- '@'
  end
  return false
end

local waiting = call('ZCARD', T) + call('ZCARD', L)
if moved or ARGV[9] == '1' and waiting > 0 or cfg.latest > latest or last and (cfg.version ~= latest or has_companion()) then
  local out = reply(0, 0, 0)
  keep(out, false)
  return out
end
if not g[3] then cfg.token = tonumber(ARGV[5]) end
raise_token(tonumber(ARGV[6]))
local n = waiting + call('ZCOUNT', D, '(' .. int(gone), '+inf')
call('UNLINK', T, L, D, F, M, S, G, X)
if H then call('UNLINK', H, U) end
if keyed.names then call('UNLINK', unpack(keyed.names)) end
if parent then call('HDEL', parent, ARGV[7]) end
if last then latest = latest + 1 end
call('HSET', G, 'version', int(latest), 'token', int(cfg.token), 'clock', int(now), unpack(g[12] and {'stepped', g[12]} or {}))
call('PEXPIRE', G, KEPT_MS)
g[1], g[2] = latest, now_text
cfg.version, cfg.latest = nil, latest
local out = reply(1, n, cfg.token)
keep(out, true)
return out
