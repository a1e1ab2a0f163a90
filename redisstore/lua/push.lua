-- push stores messages.
--
-- KEYS  of a partition, and 8 as receipt.lua says
-- ARGV  4 sender of hints; 5 msgpack: an array with four values per message, in order of effect:
--       ID; due in digits, or a number: the delay; how: what to do when the ID is taken (0 keep
--       the first, 1 replace it, 2 fail, 3 it cannot be, the caller has just made it up) and
--       4 times the flags of the record; what is behind the due time in the record;
--       6 the version of the settings that the caller knows; 7 '1' if this is a home that the
--       messages had before the topic grew; 8 a token that their older homes may have given
-- Reply {now, micros, version, hint, up, token, place, status, due, state, place, status, due,
--       state ...}
--       nothing behind version, and nothing done, if it is not the one that the caller knows
--       up is now rounded up, from which delays count; token the newest that was given here
--       place is that of a message among those given, from 0; one that is not named
--       was stored, and its ID had not been taken
--       status 2 duplicate, 3 replaced,
--       4 taken, 5 due too far ahead, 6 paused, 7 duplicate of a finished message,
--       8 not here: ask the next home
--       state  as in punctual.State
--
-- An ID is in one of its homes at most: an older home acts on those that it has, and stores none
-- that it does not have (docs/decisions/0011).
local REPLACE, FAIL, NEW = 1, 2, 3 -- NEW is without flags
local old_home = ARGV[7] == '1'

if kept then return kept end
if cfg.version ~= tonumber(ARGV[6]) then
  local out = reply()
  keep(out, false)
  return out
end
local out = reply(NEVER, up, cfg.token)
local items = cmsgpack.unpack(ARGV[5])
local ids = {} -- those that may be taken
for i = 1, #items, 4 do
  if items[i + 2] ~= NEW then ids[#ids + 1] = items[i] end
end
local known = state_count > 0 and states(ids) or {}
local was = head()

-- at is the due time of each message that waits, also of those of this very call.
local at = {}
if #ids > 0 and waiting_count > 0 then
  for i, due in ipairs(call('ZMSCORE', T, unpack(ids))) do at[ids[i]] = tonumber(due or nil) end
end

-- place says where a message is, when it is due and in which state.
local function place(id)
  local due = at[id]
  if due then return T, due, due <= now and 2 or 1 end
  local st = known[id]
  if not st then return nil end
  local lease = tonumber(call('ZSCORE', L, id) or nil)
  if lease then return L, st.due, lease <= now and 2 or 3 end
  if is_dead(id) then return D, st.due, 4 end
  return nil
end

local function remembered(id)
  if finished_count == 0 then return false end
  local till = tonumber(call('ZSCORE', F, id) or nil)
  return till and till > now
end

-- What is to be stored goes in one command per key. A message that is replaced within this
-- call takes the place of the other one there. Additions come first here: a server out of
-- memory refuses them, and then nothing was changed.
local records, times, size, index = {}, {}, 0, {}
local replaced, forgotten = {}, {}

local function store_at(n, id, head_, due, due_text, rest)
  records[n], records[n + 1] = id, head_ .. struct.pack('<d', due) .. rest
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
  if known[id] then -- also one that was dead for too long and is not yet swept
    replaced[#replaced + 1] = id
    known[id] = false
  end
  if finished_count > 0 then forgotten[#forgotten + 1] = id end
end

local plain_head = struct.pack('<Bd', PLAIN, now)

-- push stores a message, or says why not, or what it met.
local function push(id, due, due_text, how, rest)
  if due > MAX_DUE then return 5, 0, 0 end
  if cfg.paused_in then return 6, 0, 0 end
  if how == NEW then
    store_at(size + 1, id, plain_head, due, due_text, rest)
    size = size + 2
    return nil
  end
  local mode = how % 4
  local from, old_due, state = place(id)
  if old_home and not from and not remembered(id) then return 8, 0, 0 end
  local taken = from or mode ~= REPLACE and remembered(id)
  if taken and mode == FAIL then return 4, 0, 0 end
  if taken and mode ~= REPLACE then
    if not from then return 7, 0, 0 end
    return 2, old_due, state
  end
  store(id, math.floor(how / 4), due, due_text, rest)
  if from then return 3, due, 0 end
  return nil
end

local absent = false
local last_delay, last_due, last_text
for i = 1, #items, 4 do
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
  local status, at_due, state = push(items[i], due, text, items[i + 2], items[i + 3])
  if status then
    local n = #out
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = (i - 1) / 4, status, at_due, state
    absent = absent or status == 8
  end
end
if size > 0 then
  call('HSET', M, unpack(records))
  call('ZADD', T, unpack(times))
  if #replaced > 0 then
    call('ZREM', L, unpack(replaced))
    call('ZREM', D, unpack(replaced))
    call('HDEL', S, unpack(replaced))
  end
  if #forgotten > 0 then call('ZREM', F, unpack(forgotten)) end
  if raise_token(tonumber(ARGV[8])) then call('HSET', G, 'token', int(cfg.token)) end
  settle_clock()
elseif absent and dead_count + finished_count > 0 then
  -- What was too old to count here must not count again should the server's clock step back:
  -- by then the ID may be in another home.
  settle_clock()
end
out[4] = hint(was, ARGV[4])
keep(out, size > 0)
return out
