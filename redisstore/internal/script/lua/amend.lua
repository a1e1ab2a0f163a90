-- amend cancels, reschedules, requeues or deletes messages by ID.
--
-- KEYS  of a partition
-- ARGV  3 and so on, per amendment, in order of effect:
--       ID; packed: change (B, as in punctual.Change), due or delay (double), 1 if it is a due time
--       (B), and with a condition the time at which the message must be due (double)
-- Reply {now, micros, version, notified, status, due, status, due ...}
--       status  0 due too far ahead, 1 cancelled, 2 rescheduled, 3 requeued, 4 leased,
--       5 not found, 6 not dead, 7 deleted, 8 dead, 9 due at another time than the condition names:
--       due is that other time
local CANCEL_IT, RESCHEDULE, REQUEUE, DELETE = 1, 2, 3, 4
local WAS_CANCELLED, RESCHEDULED, REQUEUED, LEASED, NOT_FOUND, NOT_DEAD, DELETED, DEAD, CHANGED = 1, 2, 3, 4, 5, 6, 7, 8, 9

local out = reply(NEVER)
local ids = {}
for i = 3, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local known = states(ids)
if keyed.own then keyed.own.read(ids) end
local keeps = cfg.finished_retention > 0 or events
local needed = {} -- IDs whose states must be complete: of messages that are rescheduled, and with keeps of those that may finish
for i = 3, #ARGV, 2 do
  local id, change = ARGV[i], string.byte(ARGV[i + 1])
  if change == RESCHEDULE or keeps and (change == CANCEL_IT or known[id] and known[id].cancel) then needed[#needed + 1] = id end
end
if not complete(needed, known) then return redis.error_reply('PUNCTUAL_MORE messages are long') end
local was = next_due_time()
local changed = false
local function begin_change()
  if not changed then make_room() end
  changed = true
end

local function place(id)
  local at = tonumber(call('ZSCORE', T, id) or nil)
  if at then return T, at end
  if not known[id] then return nil end
  at = tonumber(call('ZSCORE', L, id) or nil)
  if at then return L, at end
  at = is_dead(id)
  if at then return D, at end
  return nil
end

local function end_it(id, from)
  begin_change()
  finish(id, from, known[id], CANCELLED)
  known[id] = false
end

local function cancel(id, from, at)
  if from == L and at > now then
    local st = known[id]
    begin_change()
    st.cancel = true
    put_states({id, encode_state(st)})
    if is_compact(at) then call('ZADD', L, int(ceil(at)), id) end
    return LEASED, 0
  end
  end_it(id, from)
  return WAS_CANCELLED, 0
end

-- move gives a message the first due time due. since is when the delay began at whose end the
-- message is due, or 0 if somebody named the due time.
local function move(id, st, from, due, since)
  begin_change()
  st.due, st.first, st.since, st.moved = due, due, since, true
  wait(id, st, from)
end

-- reschedule does not bring back a message that was cancelled under a lease which has run out
-- since: the message is cancelled instead.
local function reschedule(id, from, due, since)
  local st = known[id]
  if st and st.cancel then
    end_it(id, from)
    return NOT_FOUND, 0
  end
  move(id, st, from, due, since)
  return RESCHEDULED, due
end

local function requeue(id, due, since)
  local st = known[id]
  st.attempt = 0
  move(id, st, D, due, since)
  return REQUEUED, due
end

-- refusal returns the status of a change that is refused whether or not its condition holds, or nil
-- if it is not refused. from and at say where the message is. cancelled says that a cancel has come
-- during its lease.
local function refusal(change, from, at, cancelled)
  if not from then return NOT_FOUND end
  if change == REQUEUE and from ~= D then return NOT_DEAD end
  if from == D and (change == CANCEL_IT or change == RESCHEDULE) then return DEAD end
  local leased = from == L and at > now
  if leased and (change == RESCHEDULE or change == CANCEL_IT and cancelled) then return LEASED end
  return nil
end

local function too_far(change, due) return due > MAX_DUE and (change == RESCHEDULE or change == REQUEUE) end

local function amend(id, change, due, absolute, if_due)
  local since = absolute == 0 and now or 0
  if absolute == 0 then due = up + due end
  if too_far(change, due) then return 0, 0 end
  local from, at = place(id)
  local refused = refusal(change, from, at, known[id] and known[id].cancel)
  if refused then return refused, 0 end
  if if_due then
    local is = from == T and at or known[id].due
    if is ~= if_due then return CHANGED, is end
  end
  if change == DELETE then
    begin_change()
    remove(id, from)
    known[id] = false
    return DELETED, 0
  end
  if change == REQUEUE then return requeue(id, due, since) end
  if change == CANCEL_IT then return cancel(id, from, at) end
  return reschedule(id, from, due, since)
end

local HEAD_BYTES = 10

-- lacks_events reports whether some change cancels a message, which is an event to tell. It is
-- asked while the companion events is not there, before the first write. The changes of one message
-- build on each other: a cancel after a delete cancels nothing.
local function lacks_events()
  local after = {} -- of an ID: how the message stands after the changes that have been looked at
  for i = 3, #ARGV, 2 do
    local id, head = ARGV[i], ARGV[i + 1]
    local change, due, absolute = struct.unpack('<BdB', head)
    if absolute == 0 then due = up + due end
    local x = after[id]
    if not x then
      x = {}
      x.from, x.at = place(id)
      if x.from then x.due, x.cancelled = x.from == T and x.at or known[id].due, known[id] and known[id].cancel end
      after[id] = x
    end
    local meets = #head == HEAD_BYTES or x.due == struct.unpack('<d', head, HEAD_BYTES + 1)
    if meets and not too_far(change, due) and not refusal(change, x.from, x.at, x.cancelled) then
      if change == DELETE then
        x.from = nil
      elseif change == CANCEL_IT and x.from == L and x.at > now then
        x.cancelled = true
      elseif change == CANCEL_IT or change == RESCHEDULE and x.cancelled then
        return true
      else
        x.from, x.at, x.due, x.cancelled = T, due, due, false
      end
    end
  end
  return false
end

if events and events.lacks(events.own, events.CANCELLED) and lacks_events() then return events.absent() end
for i = 3, #ARGV, 2 do
  local head = ARGV[i + 1]
  local change, due, absolute = struct.unpack('<BdB', head)
  local status, at = amend(ARGV[i], change, due, absolute, #head > HEAD_BYTES and struct.unpack('<d', head, HEAD_BYTES + 1) or nil)
  out[#out + 1] = status
  out[#out + 1] = at
end
if changed then settle_clock() end
out[4] = notify(was)
conclude(out, changed)
return out
