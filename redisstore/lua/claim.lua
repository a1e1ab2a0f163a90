-- claim leases due messages, the earliest first, and ends those that come up but must
-- not be delivered any more.
--
-- KEYS  of a partition, and 8 as receipt.lua says
-- ARGV  4 how many at most (1 to 500), 5 length of the lease (0: the topic's), 6 bytes
--       after which to stop
-- Reply {now, micros, exists, next, until, ID, message, state, ID, message, state ...}
--       next is when the next message needs attention, or NEVER, also while the topic is
--       paused; until is the end of the leases
local most, length, budget = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local out = reply(NEVER, 0)
-- Of what the call leased before, all that is still leased by it.
if kept then
  local ids, first = kept.ids, kept.first
  out[4], out[5] = head(), kept.till
  local known, messages = states(ids), #ids > 0 and call('HMGET', M, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local st = known[id]
    if st and st.token == first + i - 1 and messages[i] then
      out[#out + 1] = id
      out[#out + 1] = messages[i]
      out[#out + 1] = encode_state(st)
    end
  end
  return out
end
if not cfg.version or cfg.paused_out then
  keep({ids = {}, first = 0, till = 0}, false)
  return out
end
if length == 0 then length = cfg.lease end
out[5] = now + length

-- The due of both sets, merged by time.
local due = {}
do
  local t = call('ZRANGEBYSCORE', T, '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, most)
  local l = call('ZRANGEBYSCORE', L, '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, most)
  local i, j = 1, 1
  while #due < most and (t[i] or l[j]) do
    if t[i] and (not l[j] or tonumber(t[i + 1]) <= tonumber(l[j + 1])) then
      due[#due + 1] = {id = t[i], at = tonumber(t[i + 1]), from = T}
      i = i + 2
    else
      due[#due + 1] = {id = l[j], from = L}
      j = j + 2
    end
  end
end

-- Everything is read and decided before the first write. Bodies are read a few at a time,
-- because nobody knows how long they are.
local AT_ONCE = 32
local n, bytes = 0, 0
for first = 1, #due, AT_ONCE do
  if bytes >= budget then break end
  local ids = {}
  for i = first, math.min(first + AT_ONCE - 1, #due) do ids[#ids + 1] = due[i].id end
  local messages = call('HMGET', M, unpack(ids))
  local known = states(ids)
  for i, id in ipairs(ids) do
    if bytes >= budget then break end
    local e = due[first + i - 1]
    e.message = messages[i]
    if not e.message then corrupt('message ' .. id .. ' is not in ' .. M) end
    e.state = known[id] or fresh(id, e.message, e.at)
    if e.from == L and e.state.token == 0 then corrupt('message ' .. id .. ' in ' .. L .. ' has no token') end
    if e.at then e.state.due = e.at end
    bytes = bytes + #e.message
    n = n + 1
  end
end
if n == 0 then
  out[4] = head()
  keep({ids = {}, first = 0, till = 0}, false)
  return out
end

-- must_end says how a message ends that must not be delivered, or nil.
local function must_end(st)
  if st.cancel then return 'finish' end
  if not attempts_left(st) then return REASON_ATTEMPTS end
  if not expired(st) then return nil end
  return st.drop and 'finish' or REASON_EXPIRED
end

local waiting, lapsed, leases, records = {}, {}, {}, {}
for i = 1, n do
  local e = due[i]
  local st = e.state
  local ends = must_end(st)
  if ends ~= 'finish' and st.token ~= 0 then fail(st, LEASE_RAN_OUT) end
  if ends == 'finish' then
    finish(e.id, e.from)
  elseif ends then
    die(e.id, st, e.from, ends)
  else
    st.attempt = st.attempt + 1
    cfg.token = cfg.token + 1
    st.token = cfg.token
    local record = encode_state(st)
    local from = e.from == T and waiting or lapsed
    from[#from + 1] = e.id
    leases[#leases + 1] = int(now + length)
    leases[#leases + 1] = e.id
    records[#records + 1] = e.id
    records[#records + 1] = record
    out[#out + 1] = e.id
    out[#out + 1] = e.message
    out[#out + 1] = record
  end
end
-- Taken out before put in: a server out of memory would refuse to begin with an addition.
if #waiting > 0 then call('ZREM', T, unpack(waiting)) end
if #lapsed > 0 then call('ZREM', L, unpack(lapsed)) end
if #leases > 0 then
  call('ZADD', L, unpack(leases))
  call('HSET', S, unpack(records))
  call('HSET', G, 'token', int(cfg.token), 'clock', int(now))
  g[2] = int(now)
end
settle_clock()
out[4] = head()
local leased = {}
for i = 1, #records, 2 do leased[#leased + 1] = records[i] end
keep({ids = leased, first = cfg.token - #leased + 1, till = now + length}, #leased > 0)
return out
