-- check reads some entries of a partition and reports what must never be.
--
-- KEYS  of a partition
-- ARGV  3 'm', 's', 'h' or 'u': what to go through; 4 the cursor, 0 to begin
-- Reply {now, micros, version, cursor to go on, 0 at the end, how many were read, problem ...}
local hash = ({m = M, s = S, h = H, u = U})[ARGV[3]]
if not hash then return reply('0', 0) end
local got
if ARGV[3] == 'u' then
  local last = ARGV[4] + 15
  got = {last + 1 < call('ZCARD', U) and int(last + 1) or '0', call('ZRANGE', U, ARGV[4], int(last), 'WITHSCORES')}
else
  got = call('HSCAN', hash, ARGV[4], 'COUNT', 100)
end
local out = reply(got[1], #got[2] / 2)

local function say(id, text) out[#out + 1] = 'message ' .. id .. ' in ' .. hash .. ' ' .. text end

local function check_message(id, raw)
  local at = tonumber(call('ZSCORE', T, id) or nil)
  local ok, st = pcall(fresh, id, raw, at)
  if not ok then
    say(id, 'cannot be read')
  elseif at and st.moved and call('HEXISTS', S, id) == 0 then
    say(id, 'waits for another time than it says')
  end
  if ok and st.remember and call('HEXISTS', S, id) == 0 then say(id, 'has a window of its own and no state') end
  local places = 0
  for _, set in ipairs({T, L, D}) do
    if call('ZSCORE', set, id) then places = places + 1 end
  end
  if places ~= 1 then say(id, 'is in ' .. places .. ' sets') end
  local lease = tonumber(call('ZSCORE', L, id) or nil)
  local compact = lease and is_compact(lease)
  if not at and not compact and call('HEXISTS', S, id) == 0 then say(id, 'is leased or dead without a state') end
  local wrong = keyed.own and ok and keyed.own.check(id, at, lease)
  if wrong then say(id, wrong) end
  if ok and compact then
    if not is_plain(PLAIN + message_flags(id, raw)) then say(id, 'has flags that a lease without a state cannot have') end
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
  if leased and is_compact(tonumber(leased)) then say(id, 'has a state and the score of a lease without one') end
  if (st.token ~= 0) ~= (leased and true or false) then say(id, 'has a token without a lease, or a lease without a token') end
  local lapsed_at = lapsed_count > 0 and call('ZSCORE', X, id)
  if lapsed_at and (not leased or tonumber(leased) > now or tonumber(lapsed_at) ~= st.due) then say(id, 'is in x and has no lease that has run out') end
  if (st.reason ~= 0) ~= (dead and true or false) then say(id, 'is dead without a reason, or alive with one') end
  if st.token > cfg.token then say(id, 'has a token that was never given') end
  if st.cancel and not leased then say(id, 'is to be cancelled without a lease') end
end

-- ends_at returns the set of the IDs whose finished records are past their retention from a time
-- on.
local known_ends = {}
local function ends_at(till)
  local set = known_ends[till]
  if set then return set end
  set = {}
  for _, member in ipairs(call('ZRANGEBYSCORE', U, till, till)) do
    local ids = {}
    ids_of(member, ids)
    for _, id in ipairs(ids) do set[id] = true end
  end
  known_ends[till] = set
  return set
end

-- finished_length returns how long a finished record must be by its own flags and counts, or nil if
-- these make no sense.
local function finished_length(raw)
  if not finished_until(raw) then return nil end
  local kind, n = string.byte(raw) % FINISHED_VERSION, FINISHED_BYTES
  if has(kind, DELIVERED) then n = n + 5 end
  if has(kind, MOVED_ONCE) then n = n + 7 end
  if has(kind, ATTEMPTS) then
    local failed = string.byte(raw, n + 5)
    n = n + 5
    for _ = 1, failed or 0 do
      if #raw < n + 14 then return nil end
      n = n + 14 + struct.unpack('<I2', raw, n + 13)
    end
  end
  return kind % 4 <= DROPPED and n or nil
end

local function check_finished(id, raw)
  if finished_length(raw) ~= #raw then
    say(id, 'has a finished record that cannot be read')
  elseif not ends_at(int(finished_until(raw)))[id] then
    say(id, 'has a finished record that would never be deleted')
  end
end

for i = 1, #got[2], 2 do
  local id, raw = got[2][i], got[2][i + 1]
  if ARGV[3] == 'm' then
    check_message(id, raw)
  elseif ARGV[3] == 'h' then
    check_finished(id, raw)
  elseif ARGV[3] == 'u' then
    if not ids_of(id, {}) then out[#out + 1] = 'a member of ' .. U .. ' cannot be read' end
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
