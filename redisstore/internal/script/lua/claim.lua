-- claim leases due messages, the earliest first. Due messages that must not be delivered any more
-- end on the way.
--
-- KEYS  of a partition
-- ARGV  3 how many to lease at most, 1 to 200; those that end are not among them, but both together
--       are 200 at most
--       4 length of the lease, 0: the topic's; 5 bytes after which to stop
--       6 '1' to delete what is past its retention
--       7 and so on, of a claim by ID: the IDs of the only messages to lease, in this order, each
--       once
-- Reply {now, micros, version, next, at, until, token, IDs, messages, states, turns}
--       next is the next due time; NEVER if there is none, or while delivery is paused. Of a claim
--       by ID it is how many of the IDs were read, or more if all were. at is when
--       the leases began, until their end and token that of all of them; token is 0 if there are no
--       leases. A call that is answered again may have at, until and token, and no messages, if all
--       have been settled since or the leases have run out. There may be fewer states than
--       messages: a message without one has no flag that scripts read and is delivered for the
--       first time. turns, in digits or empty, are there in a topic with keys. The lists are arrays
--       and not one text, because Redis's Lua hashes each text from end to end
local most, length, budget = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
-- asked is nil unless this is a claim by ID: the IDs; at, where among them each of ids is; and
-- read, how many of ids were read.
local asked = ARGV[7] and {at = {}, read = 0, unpack(ARGV, 7)}
-- from_t has the messages taken from t, of a claim by ID or in a topic with keys; turns has the
-- turns of those that are leased in a topic with keys.
keyed.from_t, keyed.turns = {}, {}

-- give_back releases messages whose leases have run out before any caller got them, so that the
-- attempt does not count. Those that were cancelled under the lease end.
local function give_back(held)
  for _, st in pairs(held) do
    if st.cancel and events and events.lacks(events.own, events.CANCELLED) then return events.absent() end
  end
  for id, st in pairs(held) do
    if st.cancel then
      st.attempt, st.token = st.attempt - 1, 0
      finish(id, L, st, CANCELLED)
    else
      st.attempt, st.since = st.attempt - 1, now
      wait(id, st, L)
    end
  end
  keep({ids = cmsgpack.pack({}), token = 0, at = 0, till = 0}, true)
  settle_clock()
  return reply(next_due_time(), 0, 0, 0, {}, {}, {})
end

-- ids_again returns the IDs that the call leased before, and perhaps others. Messages under compact
-- leases are found by the score of these, and those that were cancelled since by the end of the
-- leases, because a cancel gives a message a state and that score. If the clock has stepped back
-- since, by stepped, the step has given all leases a state and the end as score, and has moved some
-- of them by stepped.
local function ids_again(stepped)
  if kept.ids then return cmsgpack.unpack(kept.ids) end
  local ids = call('ZRANGEBYSCORE', L, kept.score, kept.score)
  local function add(till)
    for _, id in ipairs(call('ZRANGEBYSCORE', L, int(till), int(till), 'LIMIT', 0, stepped > 0 and 1000 or most)) do ids[#ids + 1] = id end
  end
  add(kept.till)
  if stepped > 0 then add(kept.till + stepped) end
  return ids
end

-- answered_to counts in the record of a claim with a key one more copy that gets its answer: see
-- forget.lua.
local function answered_to(record)
  record.given = record.given + 1
  make_room()
  redis.pcall('HSET', hashes.kept_in, field, content .. cmsgpack.pack(record))
end

-- answer_again answers a copy of a claim with all messages that the claim leased and that still
-- have its lease, but for compact leases that were extended. It returns none if the leases have run
-- out on the way (P3). With a key, or after the deadline, another caller may have got the messages
-- and work on them. Otherwise no caller has them, unless one has extended their leases, so they are
-- given back.
local function answer_again()
  local stepped = kept.token ~= 0 and shift - kept.shift or 0
  if stepped > 0 then -- what the record says is from before a step of the clock, which gave all leases states
    kept.at, kept.till = kept.at - stepped, kept.till - stepped
  end
  local ids = ids_again(stepped)
  local known, messages, still = states(ids), {}, {}
  for i, raw in ipairs(#ids > 0 and call('HMGET', M, unpack(ids)) or {}) do
    local id = ids[i]
    if raw and known[id] and known[id].token == kept.token then
      still[#still + 1], messages[id] = id, raw
    end
  end
  if not asked then
    table.sort(still, function(a, b)
      local x, y = known[a].due, known[b].due
      if x ~= y then return x < y end
      return before(a, b)
    end)
  end
  local bodies, records, held, turns = {}, {}, {}, keyed.own and {}
  if turns then keyed.own.read(still) end
  for i, id in ipairs(still) do
    bodies[i], records[i] = messages[id], encode_state(known[id])
    if turns then turns[i] = keyed.own.turn_of_lease(id) end
    if kept.till <= now and ceil(call('ZSCORE', L, id)) <= now then
      held[id] = known[id]
      held[id].created = held[id].created or created_of(messages[id])
    end
  end
  if field then answered_to(kept) end
  if kept.till <= now then
    if not field and now <= deadline and next(held) then return give_back(held) end
    still, bodies, records, turns = {}, {}, {}, nil
  end
  return reply(kept.read or next_due_time(), kept.at, kept.till, kept.token, still, bodies, records, turns)
end
if kept then return answer_again() end

-- The bounds of the topic; see package lifecycle, Full and Gate. fine is the time in microseconds.
local fine, freed = now * 1000 + micros % 1000, 0
local rated = cfg.interval > 0
if rated then
  -- A gate that is farther ahead than leases at once can bring it is that of a clock that has
  -- stepped back. The cut is stored, because another claim would otherwise cut it by a later time.
  local farthest = fine + cfg.at_once * cfg.interval
  if cfg.gate > farthest then
    cfg.gate = farthest
    make_room()
    call('HSET', G, 'gate', int(farthest))
  end
  most = math.min(most, cfg.at_once - ceil(math.max(0, cfg.gate - fine) / cfg.interval))
end

-- places returns how many messages of t may still be leased. freed is how many messages of l have
-- ended, less those of t that were leased.
local function places()
  return cfg.max_leases > 0 and cfg.max_leases - leased_count + freed or NEVER
end

-- next_claim_time is next_due_time for the claims: without the messages for which there is no room,
-- and not before the rate lets a lease begin.
local function next_claim_time()
  local next = next_due_time()
  if cfg.max_leases > 0 and call('ZCARD', L) >= cfg.max_leases then
    next = keyed.own and keyed.own.next_lease(L) or ceil(call('ZRANGE', L, 0, 0, 'WITHSCORES')[2] or NEVER)
  end
  if keyed.own then next = math.min(next, keyed.own.left_over(L)) end
  if rated then next = math.max(next, ceil((cfg.gate - (cfg.at_once - 1) * cfg.interval) / 1000)) end
  return next
end

local function nothing(next)
  if cfg.version and sweep() then write_clock() end
  keep({ids = cmsgpack.pack({}), token = 0, at = 0, till = 0}, false)
  return reply(next, 0, 0, 0, {}, {}, {})
end
if not cfg.version or cfg.delivery_paused then return nothing(NEVER) end
if length == 0 then length = cfg.lease end
if keyed.own and keyed.own.walking then
  keyed.own.walk(states)
elseif keyed.own and (now % 256 == 0 or ARGV[6] == '1') then
  keyed.own.heal(states, leased_count, dead_count)
end
if most <= 0 then return nothing(next_claim_time()) end

-- The due messages of t and l, merged by time. more_due reads up to count more of them.
local ids, times, from_l = {}, {}, {}
local due_t, due_l = 0, 0 -- how many of them are of each set
local function more_due(count)
  local t = call('ZRANGEBYSCORE', keyed.own and keyed.names[1] or T, '-inf', now_text, 'WITHSCORES', 'LIMIT', due_t, math.max(0, math.min(count, places())))
  local l = leased_count > 0 and call('ZRANGEBYSCORE', L, '-inf', now_text, 'WITHSCORES', 'LIMIT', due_l, count) or {}
  local i, j, last = 1, 1, #ids + count
  while #ids < last and (t[i] or l[j]) do
    local n = #ids + 1
    if t[i] and (not l[j] or tonumber(t[i + 1]) <= ceil(l[j + 1])) then
      ids[n], times[n] = t[i], tonumber(t[i + 1])
      i = i + 2
    else
      ids[n], from_l[n] = l[j], true
      j = j + 2
    end
  end
  due_t, due_l = due_t + (i - 1) / 2, due_l + (j - 1) / 2
  if keyed.own then keyed.own.dues(ids, times, last - count + 1) end
end
if asked then -- ids are those of the IDs asked for whose messages are ready
  local t, l = call('ZMSCORE', T, unpack(asked)), call('ZMSCORE', L, unpack(asked))
  for i, id in ipairs(asked) do
    local at = ceil(t[i] or l[i] or NEVER)
    if at <= now then
      local n = #ids + 1
      ids[n], asked.at[n] = id, i
      if t[i] then times[n] = at else from_l[n] = true end
    end
  end
else
  more_due(most)
end
if #ids == 0 then return nothing(next_claim_time()) end

-- must_end returns 'finish', or the reason of a death, for a message that must not be delivered,
-- and nil for any other.
local function must_end(st)
  if st.cancel then return 'finish' end
  if not attempts_left(st) then return REASON_ATTEMPTS end
  if not expired(st) then return nil end
  return st.drop and 'finish' or REASON_EXPIRED
end

-- Everything is read and decided before the first write. The counter of tokens, divided by
-- TOKEN_STEP, is raised to eight times the time in ms or more, because a primary that fails over
-- may have given tokens that its replica does not know, and no token may be given twice (P4).
-- Tokens get ahead of the time for long only where a partition is claimed from more than 8000 times
-- a second, all the time. The counter is no longer raised by the time from the year 2109 on, when
-- numbers become too large to be exact.
if now + shift < LAST_TOKEN_TIME then raise_token(8 * (now + shift) * TOKEN_STEP) end
local token = cfg.token + TOKEN_STEP
cfg.till = int(now + length)
local leased, leased_ids, bodies = 0, {}, {} -- what is delivered
local shown = {}
local leases, records = {}, {}               -- arguments that store it
local ended = {}
local from_t, ids_from_l = 0, {} -- how many messages leave t, and which leave l

local function lease(id, raw, record)
  local n = leased + 1
  leased = n
  leased_ids[n], bodies[n], shown[n] = id, raw, record
  n = n + n
  leases[n - 1], leases[n] = cfg.till, id
  records[n - 1], records[n] = id, record
end

-- decide leases a message, or notes how it ends. st is the state of the message, if it has one;
-- place is the place of the message in ids.
local function decide(place, id, raw, st, turn)
  if not st then
    st = fresh(id, raw, times[place])
  elseif times[place] then
    st.due = times[place]
  end
  if from_l[place] and st.token == 0 then corrupt('message ' .. id .. ' in ' .. L .. ' has no token') end
  local ends = must_end(st)
  if st.token ~= 0 then fail(st, LEASE_RAN_OUT) end
  st.created = st.created or created_of(raw)
  if from_l[place] and ends then freed = freed + 1 end
  if keyed.own then
    local following, due = keyed.own.take(id, ends, turn)
    if following and not asked then ids[#ids + 1], times[#ids + 1] = following, due end
  end
  if ends then
    ended[#ended + 1] = {id = id, st = st, reason = ends}
    return
  end
  st.attempt, st.token, st.began, st.since = st.attempt + 1, token, now, now
  if not from_l[place] then freed = freed - 1 end
  if keyed.own then keyed.turns[leased + 1] = turn == '' and '' or int(turn) end
  lease(id, raw, encode_state(st))
end

-- Messages are read a few at a time, because their length is not known before: as many as will fill
-- the budget if they are as long as those before, but at most AT_MOST. The failures in a state
-- count twice, because the state is not only read but written anew, and STATE_COST stands for the
-- rest of that work.
do
  local AT_MOST, STATE_COST = 32, 4096
  local MOST_DECIDED = 200 -- messages of a call, delivered or ended
  local bytes, first = 0, 1
  while bytes < budget and leased < most do
    -- Messages that end make room for others to deliver, so that a claim of one message can end up
    -- to MOST_DECIDED - 1 others and still deliver one.
    if first > #ids and not asked and (#ended > 0 and #ids < MOST_DECIDED or keyed.own and keyed.own.blocked < NEVER and #ids < 1000) then more_due(MOST_DECIDED - #ids) end
    if first > #ids then break end
    local n = first == 1 and 1 or math.max(1, math.min(AT_MOST, floor((budget - bytes) * (first - 1) / bytes)))
    local some = {unpack(ids, first, math.min(first + n - 1, #ids))}
    local messages = call('HMGET', M, unpack(some))
    local known = states(some)
    for i = 1, #some do
      local id, raw, place = some[i], messages[i], first + i - 1
      message_flags(id, raw)
      local turn = not keyed.own or keyed.own.turn(id, times[place])
      if turn and (not (asked or keyed.own) or from_l[place] or places() > 0) then
        decide(place, id, raw, known[id], turn)
        if from_l[place] then
          ids_from_l[#ids_from_l + 1] = id
        else
          from_t = from_t + 1
          if asked or keyed.own then keyed.from_t[from_t] = id end
        end
      end
      if asked then asked.read = place end
      bytes = bytes + #raw + (known[id] and STATE_COST + 2 * #known[id].failures or 0)
      if bytes >= budget or leased == most then break end
    end
    first = first + #some
  end
end

if events then
  for _, e in ipairs(ended) do
    local event = e.reason ~= 'finish' and events.DEAD or e.st.cancel and events.CANCELLED or events.EXPIRED
    if events.lacks(events.own, event) then return events.absent() end
  end
end

-- Removals come first, because a server out of memory refuses a script that begins with an
-- addition. The messages to remove are the first ones of each set, unless the caller has named
-- them, or some had to wait for their keys.
if asked or keyed.own then
  if from_t > 0 then call('ZREM', T, unpack(keyed.from_t)) end
  if #ids_from_l > 0 then call('ZREM', L, unpack(ids_from_l)) end
else
  if from_t > 0 then call('ZREMRANGEBYRANK', T, 0, from_t - 1) end
  if #ids_from_l > 0 then call('ZREMRANGEBYRANK', L, 0, #ids_from_l - 1) end
end
if #ids_from_l > 0 and lapsed_count > 0 then call('ZREM', X, unpack(ids_from_l)) end
for _, e in ipairs(ended) do
  if e.reason == 'finish' then finish(e.id, nil, e.st, e.st.cancel and CANCELLED or DROPPED) else die(e.id, e.st, nil, e.reason) end
end
if leased > 0 then
  if large.becomes(leased_count - #ids_from_l, leased) then large.add(L, leases) else call('ZADD', L, unpack(leases)) end
  put_states(records)
  call('HSET', G, 'token', int(token), 'clock', now_text)
  if rated then
    cfg.gate = math.max(fine, cfg.gate) + leased * cfg.interval
    call('HSET', G, 'gate', int(cfg.gate))
  end
  g[2] = now_text
end
if keyed.own then
  -- Other processes have heard of the messages that this claim found, and not of those whose turn
  -- has come by it.
  local _, soonest = keyed.own.arrange()
  if leased == most and soonest <= now + NEAR then publish(soonest) end
end
settle_clock()
local record = {ids = cmsgpack.pack(leased_ids), token = token, at = now, till = now + length, shift = shift, given = 1}
if asked then record.read = asked.read == #ids and #asked or asked.at[asked.read] end
if leased > 0 then conclude(record, true) else keep(record, false) end
return reply(record.read or next_claim_time(), now, now + length, leased > 0 and token or 0, leased_ids, bodies, shown, keyed.own and keyed.turns or nil)
