-- claim leases due messages, the earliest first, and ends those that come up but must
-- not be delivered any more.
--
-- KEYS  of a partition, and 8 as receipt.lua says
-- ARGV  4 how many at most (1 to 500), 5 length of the lease (0: the topic's), 6 bytes
--       after which to stop
-- Reply {now, micros, exists, next, until, token, leased}
--       next is when the next message needs attention, or NEVER, also while the topic is
--       paused; until is the end of the leases and token that of all of them; leased is
--       msgpack: an array of IDs, one of messages and one of states, in which '' stands for
--       one that is delivered for the first time and never expires
local most, length, budget = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

-- Of what the call leased before, all that is still leased by it.
local function answer_again()
  local ids = cmsgpack.unpack(kept.ids)
  local known, messages = states(ids), #ids > 0 and call('HMGET', M, unpack(ids)) or {}
  local still, bodies, records = {}, {}, {}
  for i, id in ipairs(ids) do
    local st = known[id]
    if st and st.token == kept.token and messages[i] then
      local n = #still + 1
      still[n], bodies[n], records[n] = id, messages[i], encode_state(st)
    end
  end
  return reply(head(), kept.till, kept.token, cmsgpack.pack(still, bodies, records))
end
if kept then return answer_again() end

local function nothing(next)
  keep({ids = cmsgpack.pack({}), token = 0, till = 0}, false)
  return reply(next, 0, 0, cmsgpack.pack({}, {}, {}))
end
if not cfg.version or cfg.paused_out then return nothing(NEVER) end
if length == 0 then length = cfg.lease end

-- The due of both sets, merged by time. In the usual case no lease has run out and no message
-- that waits has a state; then its record tells all, and times stays empty: to have them
-- written out and read again would be dear.
local ids, times, from_l = {}, {}, {}
local function merge()
  local t = call('ZRANGEBYSCORE', T, '-inf', now_text, 'WITHSCORES', 'LIMIT', 0, most)
  local l = call('ZRANGEBYSCORE', L, '-inf', now_text, 'WITHSCORES', 'LIMIT', 0, most)
  local i, j = 1, 1
  while #ids < most and (t[i] or l[j]) do
    local n = #ids + 1
    if t[i] and (not l[j] or tonumber(t[i + 1]) <= tonumber(l[j + 1])) then
      ids[n], times[n] = t[i], tonumber(t[i + 1])
      i = i + 2
    else
      ids[n], from_l[n] = l[j], true
      j = j + 2
    end
  end
end
local lapsed = leased_count > 0 and #call('ZRANGEBYSCORE', L, '-inf', now_text, 'LIMIT', 0, 1) > 0
local plain = not lapsed and not moved and state_count == leased_count + dead_count
if plain then ids = call('ZRANGEBYSCORE', T, '-inf', now_text, 'LIMIT', 0, most) else merge() end
if #ids == 0 then return nothing(head()) end

-- must_end says how a message ends that must not be delivered, or nil.
local function must_end(st)
  if st.cancel then return 'finish' end
  if not attempts_left(st) then return REASON_ATTEMPTS end
  if not expired(st) then return nil end
  return st.drop and 'finish' or REASON_EXPIRED
end

-- Everything is read and decided before the first write.
local token = cfg.token + 1
local till_text = int(now + length)
local first_head = fresh_head(token)
local leased, leased_ids, bodies, shown = 0, {}, {}, {} -- what is delivered
local leases, records = {}, {}                          -- arguments that store it
local ended, ended_as = {}, {}
local from_t_count, from_l_count = 0, 0

local function lease(id, raw, record, state)
  leased = leased + 1
  leased_ids[leased], bodies[leased], shown[leased] = id, raw, state
  leases[2 * leased - 1], leases[2 * leased] = till_text, id
  records[2 * leased - 1], records[2 * leased] = id, record
end

-- look_at decides about the message at a place among ids that has a state, or may expire.
local function look_at(place, id, raw, st)
  if not st then
    st = fresh(id, raw, times[place] or struct.unpack('<d', raw, FRESH_FROM))
  elseif times[place] then
    st.due = times[place]
  end
  if from_l[place] and st.token == 0 then corrupt('message ' .. id .. ' in ' .. L .. ' has no token') end
  local ends = must_end(st)
  if ends ~= 'finish' and st.token ~= 0 then fail(st, LEASE_RAN_OUT) end
  if ends then
    ended[#ended + 1], ended_as[#ended + 1] = id, {st = st, reason = ends}
    return
  end
  st.attempt, st.token = st.attempt + 1, token
  local record = encode_state(st)
  lease(id, raw, record, record)
end

-- Bodies are read a few at a time, because nobody knows how long they are.
local AT_ONCE = 32
local bytes = 0
local none = {}
for first = 1, #ids, AT_ONCE do
  local some = {unpack(ids, first, math.min(first + AT_ONCE - 1, #ids))}
  local messages = call('HMGET', M, unpack(some))
  local known = plain and none or states(some)
  for i, id in ipairs(some) do
    if bytes >= budget then break end
    local raw, place = messages[i], first + i - 1
    if message_flags(id, raw) < EXPIRES and not known[id] and plain then
      lease(id, raw, first_head .. string.sub(raw, FRESH_FROM, FRESH_TO), '')
    else
      look_at(place, id, raw, known[id])
    end
    if from_l[place] then from_l_count = from_l_count + 1 else from_t_count = from_t_count + 1 end
    bytes = bytes + #raw
  end
  if bytes >= budget then break end
end

-- Taken out before put in: a server out of memory would refuse to begin with an addition.
-- What was taken is what stands first in each set.
if from_t_count > 0 then call('ZREMRANGEBYRANK', T, 0, from_t_count - 1) end
if from_l_count > 0 then call('ZREMRANGEBYRANK', L, 0, from_l_count - 1) end
for i, id in ipairs(ended) do
  local e = ended_as[i]
  if e.reason == 'finish' then finish(id) else die(id, e.st, nil, e.reason) end
end
if leased > 0 then
  call('ZADD', L, unpack(leases))
  call('HSET', S, unpack(records))
  call('HSET', G, 'token', int(token), 'clock', now_text)
  g[2] = now_text
end
if moved and from_t_count == waiting_count then call('HDEL', G, 'moved') end
settle_clock()
keep({ids = cmsgpack.pack(leased_ids), token = token, till = now + length}, leased > 0)
return reply(head(), now + length, token, cmsgpack.pack(leased_ids, bodies, shown))
