-- push stores messages.
--
-- KEYS  of a partition, and 8 as receipt.lua says
-- ARGV  4 sender of hints; then per message, in order of effect:
--       ID; head: due or delay (double), expiry after due (double), max attempts (I4),
--       flags (B: 1 drop when expired, 2 due time given, 4 keep none: replace, 8 keep none:
--       fail); the rest of the record
-- Reply {now, micros, exists, hint, status, due, state, status, due, state ...}
--       nothing behind exists if there is no such topic: it must be made first
--       status 1 stored, 2 duplicate, 3 replaced,
--       4 taken, 5 due too far ahead, 6 paused, 7 duplicate of a finished message
--       state  as in punctual.State
local DROP_FLAG, DUE_FLAG, REPLACE, FAIL = 1, 2, 4, 8

if kept then return kept end
if not cfg.version then
  local out = reply()
  keep(out, false)
  return out
end
local out = reply(NEVER)
local ids = {}
for i = 5, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local known = states(ids)
local was = head()

local function bit(flags, b) return math.floor(flags / b) % 2 == 1 end

-- at is the due time of each message that waits, also of those of this very call.
local at = {}
if #ids > 0 then
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
local records, times, index = {}, {}, {}
local replaced, forgotten = {}, {}

local function store(id, due, max, after, drop, rest)
  local n = index[id]
  if not n then
    n = #records + 1
    index[id] = n
  end
  records[n], records[n + 1] = id, struct.pack(MESSAGE, 1, drop and DROP or 0, max, now, after) .. rest
  times[n], times[n + 1] = int(due), id
  at[id] = due
  if known[id] then -- also one that was dead for too long and is not yet swept
    replaced[#replaced + 1] = id
    known[id] = false
  end
  if finished_count > 0 then forgotten[#forgotten + 1] = id end
end

local function push(id, head_, rest)
  local due, after, max, flags = struct.unpack('<ddI4B', head_)
  if not bit(flags, DUE_FLAG) then due = up + due end
  if due > MAX_DUE then return 5, 0, 0 end
  if cfg.paused_in then return 6, 0, 0 end
  local from, old_due, state = place(id)
  local taken = from or not bit(flags, REPLACE) and remembered(id)
  if taken and bit(flags, FAIL) then return 4, 0, 0 end
  if taken and not bit(flags, REPLACE) then
    if not from then return 7, 0, 0 end
    return 2, old_due, state
  end
  store(id, due, max, after, bit(flags, DROP_FLAG), rest)
  return from and 3 or 1, due, 0
end

for i = 5, #ARGV, 3 do
  local status, due, state = push(ARGV[i], ARGV[i + 1], ARGV[i + 2])
  out[#out + 1] = status
  out[#out + 1] = due
  out[#out + 1] = state
end
if #records > 0 then
  call('HSET', M, unpack(records))
  call('ZADD', T, unpack(times))
  if #replaced > 0 then
    call('ZREM', L, unpack(replaced))
    call('ZREM', D, unpack(replaced))
    call('HDEL', S, unpack(replaced))
  end
  if #forgotten > 0 then call('ZREM', F, unpack(forgotten)) end
  for i = 1, #times, 2 do earliest = math.min(earliest, tonumber(times[i])) end
  settle_clock()
end
out[4] = hint(was, ARGV[4])
keep(out, #records > 0)
return out
