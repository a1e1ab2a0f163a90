-- check looks at some messages of a partition for what must never be.
--
-- KEYS  of a partition
-- ARGV  4 'm' or 's': the hash to go through; 5 the cursor, 0 to begin
-- Reply {now, micros, version, cursor to go on, 0 at the end, how many were read, problem ...}
local hash = ARGV[4] == 'm' and M or S
local got = call('HSCAN', hash, ARGV[5], 'COUNT', 200)
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
  if not call('ZSCORE', T, id) and call('HEXISTS', S, id) == 0 then say(id, 'is leased or dead without a state') end
end

local function check_state(id, raw)
  local ok, st = pcall(decode_state, id, raw)
  if not ok then
    say(id, 'cannot be read')
    return
  end
  if call('HEXISTS', M, id) == 0 then say(id, 'has no message') end
  local leased, dead = call('ZSCORE', L, id), call('ZSCORE', D, id)
  if (st.token ~= 0) ~= (leased and true or false) then say(id, 'has a token without a lease, or a lease without a token') end
  if (st.reason ~= 0) ~= (dead and true or false) then say(id, 'is dead without a reason, or alive with one') end
  if st.token > cfg.token then say(id, 'has a token that was never given') end
  if st.cancel and not leased then say(id, 'is to be cancelled without a lease') end
end

for i = 1, #got[2], 2 do
  local id, raw = got[2][i], got[2][i + 1]
  if ARGV[4] == 'm' then
    check_message(id, raw)
  elseif id ~= TABLE_FIELD then
    check_state(id, raw)
  end
end
if got[1] == '0' and ARGV[4] == 'm' then
  local n = call('ZCARD', T) + call('ZCARD', L) + call('ZCARD', D)
  local m = call('HLEN', M)
  if state_count > 0 and call('HEXISTS', S, TABLE_FIELD) == 0 then out[#out + 1] = S .. ' lacks the field that makes it a table' end
  if n ~= m then out[#out + 1] = 'the sets of ' .. M .. ' name ' .. n .. ' messages, but there are ' .. m end
end
return out
