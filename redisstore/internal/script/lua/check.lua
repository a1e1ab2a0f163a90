-- check looks at some messages of a partition for what must never be.
--
-- KEYS  of a partition
-- ARGV  3 'm' or 's': the hash to go through; 4 the cursor, 0 to begin
-- Reply {now, micros, version, cursor to go on, 0 at the end, how many were read, problem ...}
local hash = ARGV[3] == 'm' and M or S
local got = call('HSCAN', hash, ARGV[4], 'COUNT', 100)
local out = reply(got[1], #got[2] / 2)

local function say(id, text) out[#out + 1] = 'message ' .. id .. ' in ' .. hash .. ' ' .. text end

local function check_message(id, raw)
  local at = tonumber(call('ZSCORE', T, id) or nil)
  local ok, st = pcall(fresh, id, raw, at)
  if not ok then
    say(id, 'cannot be read')
  elseif at and st.moved and not moved and call('HEXISTS', S, id) == 0 then
    say(id, 'waits for another time than it says')
  end
  local places = 0
  for _, set in ipairs({T, L, D}) do
    if call('ZSCORE', set, id) then places = places + 1 end
  end
  if places ~= 1 then say(id, 'is in ' .. places .. ' sets') end
  local lease = tonumber(call('ZSCORE', L, id) or nil)
  local usual = lease and is_usual(lease)
  if not at and not usual and call('HEXISTS', S, id) == 0 then say(id, 'is leased or dead without a state') end
  if ok and usual then
    if message_flags(id, raw) ~= 0 then say(id, 'has flags and is leased without a state') end
    if lease_token(lease) > cfg.token then say(id, 'has a token that was never given') end
    local lapsed_at = lapsed_count > 0 and call('ZSCORE', X, id)
    if lapsed_at and (lease > now or tonumber(lapsed_at) ~= st.due) then say(id, 'is in x and has no lease that has run out') end
  end
end

local function check_state(id, raw)
  local ok, st = pcall(decode_state, id, raw)
  if not ok then
    say(id, 'cannot be read')
    return
  end
  if call('HEXISTS', M, id) == 0 then say(id, 'has no message') end
  local leased, dead = call('ZSCORE', L, id), call('ZSCORE', D, id)
  if leased and is_usual(tonumber(leased)) then say(id, 'has a state and the score of a lease without one') end
  if (st.token ~= 0) ~= (leased and true or false) then say(id, 'has a token without a lease, or a lease without a token') end
  local lapsed_at = lapsed_count > 0 and call('ZSCORE', X, id)
  if lapsed_at and (not leased or tonumber(leased) > now or tonumber(lapsed_at) ~= st.due) then say(id, 'is in x and has no lease that has run out') end
  if (st.reason ~= 0) ~= (dead and true or false) then say(id, 'is dead without a reason, or alive with one') end
  if st.token > cfg.token then say(id, 'has a token that was never given') end
  if st.cancel and not leased then say(id, 'is to be cancelled without a lease') end
end

for i = 1, #got[2], 2 do
  local id, raw = got[2][i], got[2][i + 1]
  if ARGV[3] == 'm' then
    check_message(id, raw)
  elseif id ~= TABLE_FIELD then
    check_state(id, raw)
  end
end
if got[1] == '0' and ARGV[3] == 'm' then
  local n = call('ZCARD', T) + call('ZCARD', L) + call('ZCARD', D)
  local m = call('HLEN', M)
  if state_count > 0 and call('HEXISTS', S, TABLE_FIELD) == 0 then out[#out + 1] = S .. ' lacks the field that makes it a table' end
  if lapsed_count > 0 and lapsed_count > call('ZCOUNT', L, '-inf', now_text) then
    out[#out + 1] = X .. ' has ' .. lapsed_count .. ' messages, more than there are leases that have run out'
  end
  if n ~= m then out[#out + 1] = 'the sets of ' .. M .. ' name ' .. n .. ' messages, but there are ' .. m end
end
return out
