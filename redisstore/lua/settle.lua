-- settle lets holders finish, give back, give up or extend.
--
-- KEYS  of a partition, and 8 as receipt.lua says
-- ARGV  4 sender of hints; then per settlement, in order of effect:
--       ID; head: token (double), verb (B, as in punctual.Verb), delay (double; -1 as the
--       topic's backoff says, or 0 the topic's lease), a random number from 0 to 1 (double);
--       text of the error
-- Reply {now, micros, exists, hint, status ...}
--       status 0 done, 1 lease lost, 2 cancelled, 3 due too far ahead
local ACK, RETRY, SNOOZE, DISCARD, RELEASE, EXTEND = 1, 2, 3, 4, 5, 6

if kept then return kept end
local out = reply(NEVER)
local ids, backoff = {}, false
for i = 5, #ARGV, 3 do
  ids[#ids + 1] = ARGV[i]
  local _, verb, delay = struct.unpack('<dBd', ARGV[i + 1])
  backoff = backoff or verb == RETRY and delay < 0
end
local known = states(ids)
local was = head()

-- The topic's backoff: delays of the first attempts in ms, of which the last one is for
-- all further ones, and the part by which chance lengthens them.
local delays, jitter = {0}, 0
if backoff then
  local b = call('HMGET', G, 'delays', 'jitter')
  if b[1] then
    delays = {}
    for d in string.gmatch(b[1], '%d+') do delays[#delays + 1] = tonumber(d) end
    jitter = tonumber(b[2])
  end
end

local function wait_of(st, delay, chance)
  if delay >= 0 then return delay end
  local d = delays[math.max(1, math.min(st.attempt, #delays))]
  return d + math.floor(d * jitter * chance)
end

local changed = false
local acked = {}

local function settle(id, token, verb, delay, chance, text)
  local st = known[id]
  if not st or st.token == 0 or st.token ~= token then return 1 end
  if st.cancel and verb ~= ACK and verb ~= DISCARD then
    if verb ~= EXTEND then
      finish(id, L)
      known[id], changed = false, true
    end
    return 2
  end
  if verb == RETRY or verb == SNOOZE then
    delay = wait_of(st, delay, chance)
    if up + delay > MAX_DUE then return 3 end
  end
  changed = true
  if verb == ACK then
    acked[#acked + 1] = id
    known[id] = false
  elseif verb == RETRY then
    fail(st, text)
    if attempts_left(st) then
      st.due = up + delay
      wait(id, st, L)
    else
      die(id, st, L, REASON_ATTEMPTS)
    end
  elseif verb == SNOOZE then
    st.attempt = st.attempt - 1
    st.due = up + delay
    wait(id, st, L)
  elseif verb == DISCARD then
    fail(st, text)
    die(id, st, L, REASON_DISCARDED)
  elseif verb == RELEASE then
    st.attempt = st.attempt - 1
    wait(id, st, L)
  elseif verb == EXTEND then
    if delay == 0 then delay = cfg.lease end
    call('ZREM', L, id)
    call('ZADD', L, int(now + delay), id)
    earliest = math.min(earliest, now + delay)
  end
  return 0
end

for i = 5, #ARGV, 3 do
  local token, verb, delay, chance = struct.unpack('<dBdd', ARGV[i + 1])
  out[#out + 1] = settle(ARGV[i], token, verb, delay, chance, ARGV[i + 2])
end
-- What was acked goes in one command per key.
if #acked > 0 then
  call('ZREM', L, unpack(acked))
  call('HDEL', M, unpack(acked))
  call('HDEL', S, unpack(acked))
  if cfg.remember > 0 then
    for _, id in ipairs(acked) do call('ZADD', F, int(now + cfg.remember), id) end
    finished_count = finished_count + #acked
  end
end
if changed then settle_clock() end
out[4] = hint(was, ARGV[4])
keep(out, changed)
return out
