-- settle acks, retries, snoozes, discards, releases or extends leased messages.
--
-- KEYS  of a partition
-- ARGV  3 msgpack: an array with five values per settlement, in order of effect: ID; token; verb,
--       as in punctual.Verb; delay in ms, or a due time in digits (to extend, 0 stands for the
--       topic's lease; to retry, -1 to -2 for the topic's backoff, and what is below -1 is a chance
--       drawn by the caller); text of the error
--       4 '1' if 3 has acks alone, in a shorter form: token, how many IDs, these IDs, and the next
--       token ...
--       5 and so on as follow.lua says
-- Reply {now, micros, version, notified, place, status, place, status ...}, with more as follow.lua
--       says
--       place is that of a settlement among those given, from 0; one that is not named was done
--       status 1 lease lost, 2 the message was cancelled under this lease, 3 due too far ahead
--              4 nothing was done: the states are too long for one script, or an earlier settlement
--              of the ID waits for a topic; the caller sends these settlements again
local ACK, RETRY, SNOOZE, DISCARD, RELEASE, EXTEND = 1, 2, 3, 4, 5, 6

local out = reply(NEVER)
if only_acks then
  local all, i = {}, 1
  while i <= #items do
    for j = i + 2, i + 1 + items[i + 1] do
      for _, v in ipairs({items[j], items[i], ACK, 0, ''}) do all[#all + 1] = v end
    end
    i = i + 2 + items[i + 1]
  end
  items = all
end
local ids, backoff = {}, false
only_acks = true
for i = 1, #items, 5 do
  ids[#ids + 1] = items[i]
  only_acks = only_acks and items[i + 2] == ACK
  backoff = backoff or items[i + 2] == RETRY and type(items[i + 3]) == 'number' and items[i + 3] < 0
end
-- An ack makes nothing need attention earlier, unless it has follow-ups in its own topic, or the
-- topic has keys.
local was = only_acks and not (follow and follow.own) and not keyed.own and NEVER or next_due_time()
local keeps = cfg.finished_retention > 0 or events -- then an ack needs the state, too

-- STATES is how many bytes of states one script reads at most where an ack needs the state; it
-- reads at least one state. left are the places of the settlements that this script does not reach.
local left = {}
do
  local STATES, bytes = 262144, 0
  for n = 1, keeps and #ids or 0 do
    bytes = bytes + call('HSTRLEN', S, ids[n])
    if n > 1 and bytes > STATES then
      for i = n, #ids do left[#left + 1], ids[i] = i - 1, nil end
      break
    end
  end
end

-- token has, by ID, the current token of each message, 0 if it is not leased. known has the states
-- of the messages for which an ID is not enough: with keeps all of them, and else those that are
-- not just acked.
local token, known = {}, {}
local remember = {} -- of messages with a remember: for how long their ID is remembered
local scores = call('ZMSCORE', L, unpack(ids))
if keyed.own then keyed.own.read(ids) end
local stateless = {} -- IDs of messages without a stored state whose state is needed
local may_end = {} -- IDs of messages with a stored state that may need the time of creation, see complete
do
  local text, score, score_token -- the last score: the messages of one claim have the same one
  for n, raw in ipairs(call('HMGET', S, unpack(ids))) do
    local id, is_ack = ids[n], items[5 * n - 2] == ACK
    if scores[n] ~= text then text, score, score_token = scores[n], tonumber(scores[n] or 0), nil end
    if raw then
      token[id] = state_token(id, raw)
      if keeps or not is_ack then known[id] = decode_state(id, raw) end
      remember[id] = state_remember(raw)
      if keeps and (is_ack or known[id].cancel or events) then may_end[#may_end + 1] = id end
    else
      score_token = score_token or is_compact(score) and lease_token(score) or 0
      token[id] = score_token
      if keeps or not is_ack then stateless[#stateless + 1] = id end
    end
  end
end
add_compact_states(known, stateless)
for _, id in ipairs(stateless) do
  if token[id] ~= 0 and not known[id] then corrupt('message ' .. id .. ' is not in ' .. M) end
end
if not complete(may_end, known) then return redis.error_reply('PUNCTUAL_MORE messages are long') end

-- The topic's backoff: the delays after the first attempts in ms, and by what part of a delay
-- chance lengthens it at most. The last delay is for all further attempts.
local delays, jitter = {0}, 0
if backoff then
  local b = call('HMGET', G, 'delays', 'jitter')
  if b[1] then
    delays = {}
    for d in string.gmatch(b[1], '%d+') do delays[#delays + 1] = tonumber(d) end
    jitter = tonumber(b[2])
    if #delays == 0 or not jitter or jitter ~= jitter then corrupt('fields delays and jitter of ' .. G .. ' cannot be read') end
  end
end

-- next_due returns when a message that is given back is due again: after a delay, or at a due time
-- in digits.
local function next_due(st, when)
  if type(when) == 'string' then return tonumber(when) end
  if when >= 0 then return up + when end
  local chance = -1 - when
  local d = delays[math.max(1, math.min(st.attempt, #delays))]
  return up + d + math.floor(d * jitter * chance)
end

local changed = false
local acked = {}

-- remembers reports whether the ID of a message stays in use when the message finishes.
local function remembers(id) return (remember[id] or cfg.dedupe_window) > 0 end

-- now_holds notes, for the follow-ups of later settlements, what a settlement leaves under an ID of
-- this topic.
local function now_holds(id, set, at, due)
  if follow and follow.own then follow.own.hold(id, set and {set = set, at = at, due = due}, not set and remembers(id)) end
end

local function ack(id)
  acked[#acked + 1] = id
  token[id] = 0
  save_finished(id, known[id], ACKED)
  if events then events.ended(id, known[id], ACKED) end
  now_holds(id, nil)
end

local function extend(id, st, delay)
  if delay == 0 then delay = cfg.lease end
  remove_leases(id)
  call('ZADD', L, int(now + delay), id)
  st.since = now
  put_states({id, encode_state(st)})
  earliest = math.min(earliest, now + delay)
  now_holds(id, L, now + delay, st.due)
end

-- give_back has a message wait until it is due again. when is as in next_due.
local function give_back(id, st, due, when)
  st.due, st.since, st.moved = due, type(when) == 'string' and 0 or now, true
  wait(id, st, L)
  now_holds(id, T, due)
end

local function bury(id, st, reason)
  die(id, st, L, reason)
  now_holds(id, D, now, st.due)
end

local function settle(place, id, verb, when, text)
  local st, due = known[id], nil
  if st.cancel and verb ~= DISCARD then
    if verb ~= EXTEND then
      finish(id, L, st, CANCELLED)
      token[id], changed = 0, true
      now_holds(id, nil)
    end
    return 2
  end
  if verb == RETRY or verb == SNOOZE then
    due = next_due(st, when)
    if due > MAX_DUE then return 3 end
  end
  if follow and (verb == SNOOZE or verb == DISCARD) then
    local status, at, state = follow.refusal(place, id, verb == SNOOZE and {set = T, at = due} or {set = D, at = now, due = st.due}, false)
    if status then return status, at, state end
  end
  changed = true
  if verb == RETRY then
    fail(st, text)
    if attempts_left(st) then
      if events then events.tell(events.own, events.RETRIED, id, st.attempt, st.created, st.first, due, st.began) end
      give_back(id, st, due, when)
    else
      bury(id, st, REASON_ATTEMPTS)
    end
  elseif verb == SNOOZE then
    st.attempt = st.attempt - 1
    give_back(id, st, due, when)
  elseif verb == DISCARD then
    fail(st, text)
    bury(id, st, REASON_DISCARDED)
  elseif verb == RELEASE then
    st.attempt, st.since = st.attempt - 1, now
    wait(id, st, L)
    now_holds(id, T, st.due)
  elseif verb == EXTEND then
    extend(id, st, when)
  end
  token[id] = st.token
  return nil
end

-- lose ends the lease of a message that a follow-up replaces.
local function lose(id) token[id] = 0 end

-- settle_place carries out one settlement. It returns what the reply says of it: a status, and if a
-- follow-up is refused, due time and state; nothing for a settlement that was done.
local function settle_place(place)
  local i = 5 * place + 1
  local id, verb = items[i], items[i + 2]
  if token[id] == 0 or token[id] ~= items[i + 1] then return 1 end
  local status, at, state
  if verb ~= ACK then
    status, at, state = settle(place, id, verb, items[i + 3], items[i + 4])
  else
    if follow then status, at, state = follow.refusal(place, id, nil, remembers(id)) end
    if not status then ack(id) end
  end
  if not status and follow then follow.store(place, lose) end
  return status, at, state
end

-- lacks_events reports whether some settlement has an event to tell while the companion events is
-- not there. It runs before the first write. The settlements build on each other: after an
-- extension a lease goes on, after an ack it is over, and a follow-up finds what the settlements
-- before it leave. So all of them are tried, and what they would leave is forgotten again.
local function lacks_events()
  local over, found = {}, false
  local forget = follow and follow.try()
  for place = 0, #ids - 1 do
    local i = 5 * place + 1
    local id, verb = items[i], items[i + 2]
    local st = known[id]
    if not over[id] and token[id] ~= 0 and token[id] == items[i + 1] then
      local event, refused, follows = nil, false, follow and (verb == ACK or verb == SNOOZE or verb == DISCARD)
      local set, at, due -- what the settlement leaves under the ID
      if verb == ACK then
        event = events.ACKED
      elseif st.cancel and verb ~= DISCARD then
        event, refused, follows = events.CANCELLED, verb == EXTEND, false
      elseif verb == DISCARD then
        event, set, at, due = events.DEAD, D, now, st.due
      elseif verb == EXTEND then
        set, at, due = L, NEVER, st.due
      elseif verb == RELEASE then
        set, at = T, st.due
      else
        set, at = T, next_due(st, items[i + 3])
        refused = at > MAX_DUE
        if verb == RETRY and attempts_left(st) then
          event = events.RETRIED
        elseif verb == RETRY then
          event, set, at, due = events.DEAD, D, now, st.due
        end
      end
      if follows and not refused then
        refused = follow.refusal(place, id, set and {set = set, at = at, due = due}, not set and remembers(id)) ~= nil
      end
      if not refused then
        found = event and events.lacks(events.own, event) or follows and follow.lacks_events(place)
        if found then break end
        over[id] = verb ~= EXTEND
        now_holds(id, set, at, due)
        if follows then follow.assume(place, function(replaced) over[replaced] = true end) end
      end
    end
  end
  if forget then forget() end
  return found
end

if events and not events.is_there and lacks_events() then return events.absent() end
if follow then
  local failed = follow.room()
  if failed then return failed end
end
-- answers.undecided has the IDs whose settlement waits for a topic to be looked up. Further
-- settlements of these IDs are left for the next script, too, because the items of a call take
-- effect in order. undecided is a field of answers because a script may have only 200 local
-- variables.
local answers, decided = {undecided = {}}, false
for place = 0, #ids - 1 do
  local status, at, state = 4, nil, nil
  if not answers.undecided[ids[place + 1]] then status, at, state = settle_place(place) end
  if status then
    local n = #answers
    answers[n + 1], answers[n + 2] = place, status
    if at then answers[n + 3], answers[n + 4] = at, state end
  end
  if status and (status == 4 or follow and follow.to_look_up(status)) then
    answers.undecided[ids[place + 1]] = true
  else
    decided = true
  end
end
for _, place in ipairs(left) do
  local n = #answers
  answers[n + 1], answers[n + 2] = place, 4
end
changed = changed or #acked > 0
-- All acked messages are deleted with one command per key.
if #acked > 0 then
  remove_leases(unpack(acked))
  delete_records(acked)
  if cfg.dedupe_window > 0 or next(remember) then
    local till, times = forgotten(), {}
    for _, id in ipairs(acked) do
      local own = remember[id] and forgotten(remember[id]) or till
      if own then times[#times + 1], times[#times + 2] = own, id end
    end
    if #times > 0 then call('ZADD', F, unpack(times)) end
    finished_count = finished_count + #times / 2
  end
end
if follow then changed = follow.write(out) or changed end
if changed then settle_clock() end
out[4] = notify(was)
for i, v in ipairs(answers) do out[#out + 1] = v end
-- If nothing of the call was decided, its record does not stand under a key, because the call is
-- sent again when its topics have been looked up.
if decided then conclude(out, changed) else keep(out, changed) end
return out
