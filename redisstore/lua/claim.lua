-- claim leases due messages, the earliest first, and ends those that come up but must
-- not be delivered any more.
--
-- KEYS  of a partition, and 8 as receipt.lua says
-- ARGV  4 how many at most (1 to 500), 5 length of the lease (0: the topic's), 6 bytes
--       after which to stop
-- Reply {now, micros, version, next, until, token, leased}
--       next is when the next message needs attention, or NEVER, also while the topic is
--       paused; until is the end of the leases and token that of all of them; leased is
--       msgpack: an array of IDs, one of messages and one of states, in which '' stands for
--       that of a message without flags that is delivered for the first time
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
  if cfg.version and sweep() then write_clock() end
  keep({ids = cmsgpack.pack({}), token = 0, till = 0}, false)
  return reply(next, 0, 0, cmsgpack.pack({}, {}, {}))
end
if not cfg.version or cfg.paused_out then return nothing(NEVER) end
if length == 0 then length = cfg.lease end

-- The due of both sets, merged by time. In the usual case no lease has run out and no message
-- that waits has a state; then its record tells all, and times stays empty, because to have them
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
-- Not below eight times the time in ms: a primary that fails over may have given tokens that its
-- replica does not know of, and they must not be given again (P4). A partition would have to
-- be claimed from more than 8000 times a second, all the time, to be ahead of that; and it ends
-- in the year 2109, when numbers become too large to be exact.
if now < LAST_TOKEN_TIME then raise_token(8 * now * TOKEN_STEP) end
local token = cfg.token + TOKEN_STEP
local first_head, till_text = fresh_head(token), int(now + length)
local leased, leased_ids, bodies, shown = 0, {}, {}, {} -- what is delivered
local leases, records = {}, {}                          -- arguments that store it
local ended, ended_as = {}, {}
local from_t, from_l_count = 0, 0

local function lease(id, raw, record, state)
  local n = leased + 1
  leased = n
  leased_ids[n], bodies[n], shown[n] = id, raw, state
  n = n + n
  leases[n - 1], leases[n] = till_text, id
  records[n - 1], records[n] = id, record
end

-- look_at decides about a message that is not plain. st is its state, if it has one; place is
-- its own among ids.
local function look_at(place, id, raw, st)
  if not st then
    st = fresh(id, raw, times[place])
  elseif times[place] then
    st.due = times[place]
  end
  if from_l[place] and st.token == 0 then corrupt('message ' .. id .. ' in ' .. L .. ' has no token') end
  local ends = must_end(st)
  if ends ~= 'finish' and st.token ~= 0 then fail(st, LEASE_RAN_OUT) end
  if ends then
    ended[#ended + 1], ended_as[#ended_as + 1] = id, {st = st, reason = ends}
    return
  end
  st.attempt, st.token = st.attempt + 1, token
  local record = encode_state(st)
  lease(id, raw, record, record)
end

-- Bodies are read a few at a time, because nobody knows how long they are.
local AT_ONCE = 32
local byte, sub = string.byte, string.sub
local bytes, none = 0, {}
for first = 1, #ids, AT_ONCE do
  local some = {unpack(ids, first, math.min(first + AT_ONCE - 1, #ids))}
  local messages = call('HMGET', M, unpack(some))
  local known = plain and none or states(some)
  for i = 1, #some do
    local id, raw = some[i], messages[i]
    if plain and raw and byte(raw) == PLAIN and #raw >= MESSAGE_BYTES then
      lease(id, raw, first_head .. sub(raw, PLAIN_FROM, PLAIN_TO), '')
    else
      message_flags(id, raw)
      look_at(first + i - 1, id, raw, known[id])
    end
    if from_l[first + i - 1] then from_l_count = from_l_count + 1 else from_t = from_t + 1 end
    bytes = bytes + #raw
    if bytes >= budget then break end
  end
  if bytes >= budget then break end
end

-- Taken out before put in: a server out of memory would refuse to begin with an addition.
-- What was taken is what stands first in each set.
if from_t > 0 then call('ZREMRANGEBYRANK', T, 0, from_t - 1) end
if from_l_count > 0 then call('ZREMRANGEBYRANK', L, 0, from_l_count - 1) end
for i, id in ipairs(ended) do
  local e = ended_as[i]
  if e.reason == 'finish' then finish(id) else die(id, e.st, nil, e.reason) end
end
if leased > 0 then
  call('ZADD', L, unpack(leases))
  put_states(records)
  call('HSET', G, 'token', int(token), 'clock', now_text)
  g[2] = now_text
end
if moved and from_t == waiting_count then call('HDEL', G, 'moved') end
settle_clock()
keep({ids = cmsgpack.pack(leased_ids), token = token, till = now + length}, leased > 0)
return reply(head(), now + length, token, cmsgpack.pack(leased_ids, bodies, shown))
