-- delete deletes a topic and all its messages in a partition, in one step. Version, token counter and clock stay for a
-- day. The version stays so that a call which has not seen the deletion does not bring the topic back. The token counter
-- stays so that tokens grow when the topic is created again. After that day versions and tokens still grow, because they
-- begin with the time.
--
-- KEYS  of a partition
-- ARGV  3 the version that the topic is deleted from, 4 '1' in partition 0, which comes last and
--       gets the next version; 5 number of the partition; 6 a token above which all further
--       ones must be
-- Reply {now, micros, version, 1 if it was done, how many messages, newest token}: not done when
--       the version has changed
local KEPT_MS = 86400000
local latest, last = tonumber(ARGV[3]), ARGV[4] == '1'
if cfg.latest > latest or last and cfg.version ~= latest then
  local out = reply(0, 0, 0)
  keep(out, false)
  return out
end
if not g[3] then cfg.token = tonumber(ARGV[5]) end
raise_token(tonumber(ARGV[6]))
local n = call('ZCARD', T) + call('ZCARD', L) + call('ZCOUNT', D, '(' .. int(gone), '+inf')
call('UNLINK', T, L, D, F, M, S, G, X)
if H then call('UNLINK', H, U) end
if last then latest = latest + 1 end
call('HSET', G, 'version', int(latest), 'token', int(cfg.token), 'clock', int(now))
call('PEXPIRE', G, KEPT_MS)
g[1], g[2] = latest, now_text
cfg.version, cfg.latest = nil, latest
local out = reply(1, n, cfg.token)
keep(out, true)
return out
