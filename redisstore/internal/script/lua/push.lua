-- push stores messages.
--
-- KEYS  of a partition
-- ARGV  3 msgpack: an array with three values per message, in order of effect:
--       ID; due in digits, or a number: the delay; how: what to do when the ID is in use (0 keep
--       the first, 1 replace it, 2 fail, 3 it cannot be in use, because the caller has just made it up,
--       4 replace a dead one) and 8 times the flags of the record; 4 the version of the settings that the
--       caller knows; then, per message, what is behind the due time in its record
-- Reply {now, micros, version, notified, up, place, status, due, state, place, status, due, state ...}
--       nothing behind version, and nothing done, if it is not the one that the caller knows
--       up is now rounded up, from which delays count
--       place is that of a message among those given, from 0; one that is not named
--       was stored, and its ID was not in use
--       status 2 duplicate, 3 replaced,
--       4 ID in use, 5 due too far ahead, 6 paused, 7 duplicate of a finished message,
--       8 ID in use by a dead message: due is when it died
--       state  as in punctual.State
local REPLACE, FAIL, REPLACE_DEAD = 1, 2, 4

if cfg.version ~= tonumber(ARGV[4]) then
  local out = reply()
  keep(out, false)
  return out
end
local out = reply(NEVER, up)
local ids = {} -- those that may be in use
for i = 1, #items, 3 do
  if items[i + 2] ~= NEW then ids[#ids + 1] = items[i] end
end
local known = state_count + leased_count > 0 and states(ids) or {}

-- at has the due time of each message that waits, also of those that this call stores.
local at = {}
if #ids > 0 and waiting_count > 0 then
  for i, due in ipairs(call('ZMSCORE', T, unpack(ids))) do at[ids[i]] = tonumber(due or nil) end
end

-- place returns the set that has a message, when the message is due or died, and its state as in punctual.State; or nil.
local function place(id)
  local due = at[id]
  if due then return T, due, due <= now and 2 or 1 end
  local st = known[id]
  if not st then return nil end
  local lease = tonumber(call('ZSCORE', L, id) or nil)
  if lease then return L, st.due, lease <= now and 2 or 3 end
  local died = is_dead(id)
  if died then return D, died, 4 end
  return nil
end

local function remembered(id)
  if finished_count == 0 then return false end
  local till = tonumber(call('ZSCORE', F, id) or nil)
  return till and till > now
end

-- All messages are stored with one command per key. If a message of this call replaces another one of this call, it takes
-- the other's place in these arguments. Additions come first here, so that a server out of memory refuses the call before
-- anything has changed.
local records, times, size, index = {}, {}, 0, {}
local replaced, forgotten = {}, {}
local own_states = {} -- of messages with a remember: ID -> state

local function store_at(n, id, prefix, due, due_text, rest)
  records[n], records[n + 1] = id, prefix .. struct.pack('<d', due) .. rest
  times[n], times[n + 1] = due_text, id
  if due < earliest then earliest = due end
end

local function store(id, flags, due, due_text, rest)
  local n = index[id]
  if not n then
    n, size = size + 1, size + 2
    index[id] = n
  end
  store_at(n, id, struct.pack('<Bd', PLAIN + flags, now), due, due_text, rest)
  at[id] = due
  own_states[id] = nil
  if has(flags, REMEMBER) then own_states[id] = encode_state(fresh(id, records[n + 1])) end
  if known[id] then -- also a dead message past its retention that no sweep has deleted
    replaced[#replaced + 1] = id
    known[id] = false
  end
  if finished_count > 0 then forgotten[#forgotten + 1] = id end
end

local plain_prefix = struct.pack('<Bd', PLAIN, now)

-- push stores a message. It returns status, due time and state for the reply, or nil if the reply need not name the message.
local function push(id, due, due_text, how, rest)
  if due > MAX_DUE then return 5, 0, 0 end
  if cfg.push_paused then return 6, 0, 0 end
  if how == NEW then
    store_at(size + 1, id, plain_prefix, due, due_text, rest)
    size = size + 2
    return nil
  end
  local mode = how % 8
  local from, old_due, state = place(id)
  local in_use = from or mode ~= REPLACE and remembered(id)
  local dead = from == D
  if dead and mode ~= REPLACE and mode ~= REPLACE_DEAD then return 8, old_due, state end
  if in_use and mode == FAIL then return 4, 0, 0 end
  if in_use and not dead and mode ~= REPLACE then
    if not from then return 7, 0, 0 end
    return 2, old_due, state
  end
  store(id, math.floor(how / 8), due, due_text, rest)
  if from then return 3, due, 0 end
  return nil
end

local last_delay, last_due, last_text
for i = 1, #items, 3 do
  local due, text = items[i + 1]
  if type(due) == 'string' then
    due, text = tonumber(due), due
  else
    if due ~= last_delay then
      last_delay, last_due = due, up + due
      last_text = int(last_due)
    end
    due, text = last_due, last_text
  end
  local status, at_due, state = push(items[i], due, text, items[i + 2], ARGV[5 + (i - 1) / 3])
  if status then
    local n = #out
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = (i - 1) / 3, status, at_due, state
  end
end
local was = earliest <= now + NEAR and next_due_time() or NEVER
if size > 0 then
  call('HSET', M, unpack(records))
  if earliest <= now + NEAR and large.becomes(waiting_count, size / 2) then large.add(T, times) else call('ZADD', T, unpack(times)) end
  if #replaced > 0 then
    remove_leases(unpack(replaced))
    call('ZREM', D, unpack(replaced))
    call('HDEL', S, unpack(replaced))
  end
  if #forgotten > 0 then call('ZREM', F, unpack(forgotten)) end
  if next(own_states) then
    local all = {}
    for id, state in pairs(own_states) do all[#all + 1], all[#all + 2] = id, state end
    put_states(all)
  end
  settle_clock()
end
out[4] = notify(was)
conclude(out, size > 0)
return out
