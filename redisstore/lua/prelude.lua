-- What all scripts of a partition share; it stands behind start.lua and in front of each of
-- them.

-- A key of a wrong type fails here, before anything is written. What is counted is as it was
-- when the script began, but for dead_count and finished_count, which never miss anything.
local waiting_count, leased_count, dead_count = call('ZCARD', T), call('ZCARD', L), call('ZCARD', D)
local finished_count = call('ZCARD', F)
call('HLEN', M)
local state_count = math.max(call('HLEN', S) - 1, 0) -- without TABLE_FIELD

-- raise_token makes all further tokens greater than a token of another partition.
local function raise_token(above)
  if above > cfg.token then
    cfg.token = above - above % TOKEN_STEP + TOKEN_STEP + cfg.token % TOKEN_STEP
    return true
  end
  return false
end

-- Dead messages that died at this time or before are gone, though they may still have to
-- be swept away.
local gone = tonumber(g[4] or -NEVER)
if cfg.retention > 0 then
  gone = math.max(gone, now - cfg.retention)
end

local function is_dead(id)
  if dead_count == 0 then return nil end
  local died = tonumber(call('ZSCORE', D, id) or nil)
  if died and died > gone then return died end
  return nil
end

-- When the next message needs attention; if that is not later than now, any such time.
local function head()
  local t = tonumber(call('ZRANGE', T, 0, 0, 'WITHSCORES')[2] or NEVER)
  if t <= now then return t end
  local l = tonumber(call('ZRANGE', L, 0, 0, 'WITHSCORES')[2] or NEVER)
  return math.min(t, l)
end

-- States.

-- Redis keeps a hash of few and short fields as a list, which it goes through from end to end
-- for each field. A long one makes it a table. It is there from the first state on.
local TABLE_FIELD = '' -- no ID is empty
local TABLE_VALUE = 'This field is longer than Redis lets the fields of a list be: 64 bytes.'

-- put_states stores states, given as ID, record, ID, record ...
local function put_states(records)
  if state_count == 0 then
    records[#records + 1] = TABLE_FIELD
    records[#records + 1] = TABLE_VALUE
  end
  call('HSET', S, unpack(records))
end

local STATE = '<BBBBI4ddI4'
local STATE_BYTES = 28
local EXPIRY_BYTES = 16

local function has(flags, flag) return math.floor(flags / flag) % 2 == 1 end

local function decode_state(id, raw)
  local flags = #raw >= STATE_BYTES and string.byte(raw) == 1 and string.byte(raw, 2)
  local rest = STATE_BYTES + (flags and has(flags, EXPIRES) and EXPIRY_BYTES or 0)
  if not flags or #raw < rest then
    corrupt('state of message ' .. id .. ' in ' .. S .. ' cannot be read')
  end
  local _, _, reason, failed, attempt, token, due, max = struct.unpack(STATE, raw)
  local base, after = due, 0
  if rest > STATE_BYTES then base, after = struct.unpack('<dd', raw, STATE_BYTES + 1) end
  return {
    drop = has(flags, DROP), cancel = has(flags, CANCEL), moved = has(flags, MOVED),
    reason = reason, failed = failed, attempt = attempt, max = max,
    token = token, due = due, base = base, after = after, failures = string.sub(raw, rest + 1),
  }
end

-- state_token is the token in a state, 0 unless the message is leased.
local function state_token(id, raw)
  if #raw < STATE_BYTES or string.byte(raw) ~= 1 then
    corrupt('state of message ' .. id .. ' in ' .. S .. ' cannot be read')
  end
  return (struct.unpack('<d', raw, 9))
end

local function encode_state(st)
  local flags = (st.drop and DROP or 0) + (st.cancel and CANCEL or 0) + (st.after > 0 and EXPIRES or 0) + (st.moved and MOVED or 0)
  local expiry = st.after > 0 and struct.pack('<dd', st.base, st.after) or ''
  return struct.pack(STATE, 1, flags, st.reason, st.failed, st.attempt, st.token, st.due, st.max) .. expiry .. st.failures
end

local MESSAGE = '<BddI4'
local MESSAGE_BYTES = 21
local PLAIN = 16 -- first byte of a message: the version, 1, times 16, and the flags

-- message_flags makes sure that a message can be read.
local function message_flags(id, raw)
  local flags = raw and #raw >= MESSAGE_BYTES and string.byte(raw) - PLAIN
  if not flags or flags < 0 or flags >= 16 then
    corrupt('message ' .. id .. ' in ' .. M .. ' is missing or cannot be read')
  end
  return flags
end

-- fresh is the state of a message that was never claimed. due is the time that it waits for,
-- if it is not the one in the message.
local function fresh(id, raw, due)
  local flags = message_flags(id, raw)
  local _, _, first, max = struct.unpack(MESSAGE, raw)
  local after = has(flags, EXPIRES) and struct.unpack('<d', raw, MESSAGE_BYTES + 1) or 0
  due = due or first
  return {
    drop = has(flags, DROP), cancel = false, moved = due ~= first, reason = 0, failed = 0, attempt = 0, max = max,
    token = 0, due = due, base = due, after = after, failures = '',
  }
end

-- A message without flags that is claimed for the first time has this state: fresh_head, and
-- what stands in the message from PLAIN_FROM to PLAIN_TO.
local function fresh_head(token) return struct.pack('<BBBBI4d', 1, 0, 0, 0, 1, token) end
local PLAIN_FROM, PLAIN_TO = 10, 21

-- states reads the states of many messages; false for one that has none.
local function states(ids)
  local out = {}
  if #ids == 0 then return out end
  for i, raw in ipairs(call('HMGET', S, unpack(ids))) do
    out[ids[i]] = raw and decode_state(ids[i], raw)
  end
  return out
end

local function fail(st, text)
  if st.failed == MAX_FAILURES then
    local _, _, n = struct.unpack('<I4dI2', st.failures)
    st.failures = string.sub(st.failures, 14 + n + 1)
    st.failed = st.failed - 1
  end
  st.failures = st.failures .. struct.pack('<I4dI2', st.attempt, now, #text) .. text
  st.failed = st.failed + 1
end

local function attempts_left(st)
  local max = st.max
  if max == 0 then max = cfg.attempts end
  return st.attempt < max
end

local function expired(st)
  return st.after > 0 and math.min(st.base + st.after, MAX_DUE + 1) <= now
end

-- Transitions. Each takes the message from where it is to where it belongs.

local earliest = NEVER -- the earliest time at which a message that was moved needs attention

-- wait puts a message on the timeline; it was in the given set, if any. Whoever has given it
-- another due time has set moved. The state of one that is as if it had never been claimed
-- is not kept.
local function wait(id, st, from)
  if from and from ~= T then call('ZREM', from, id) end
  st.token, st.cancel, st.reason = 0, false, 0
  call('ZADD', T, int(st.due), id)
  if st.attempt == 0 and st.failed == 0 and not st.moved then
    call('HDEL', S, id)
  else
    put_states({id, encode_state(st)})
  end
  earliest = math.min(earliest, st.due)
end

-- die makes a message dead; it was in the given set, if any.
local function die(id, st, from, reason)
  if from then call('ZREM', from, id) end
  st.token, st.cancel, st.reason = 0, false, reason
  call('ZADD', D, now_text, id)
  put_states({id, encode_state(st)})
  dead_count = dead_count + 1
end

-- remove takes a message out without a trace; it was in the given set, if any.
local function remove(id, from)
  if from then call('ZREM', from, id) end
  call('HDEL', M, id)
  call('HDEL', S, id)
end

-- finish takes out a message that was acked, cancelled or dropped.
local function finish(id, from)
  remove(id, from)
  if cfg.remember > 0 then
    call('ZADD', F, int(now + cfg.remember), id)
    finished_count = finished_count + 1
  end
end

-- SWEEP is how many dead messages and finished IDs one script lets go of: more than it can add,
-- so that they do not gather.
local SWEEP = 512

-- sweep lets go of some dead messages and finished IDs that were kept long enough, and reports
-- whether there were any.
local function sweep()
  local swept = false
  if dead_count > 0 and gone > -NEVER then
    local ids = call('ZRANGEBYSCORE', D, '-inf', int(gone), 'LIMIT', 0, SWEEP)
    if #ids > 0 then
      call('ZREM', D, unpack(ids))
      call('HDEL', M, unpack(ids))
      call('HDEL', S, unpack(ids))
      swept = true
    end
  end
  if finished_count > 0 then
    local ids = call('ZRANGEBYSCORE', F, '-inf', now_text, 'LIMIT', 0, SWEEP)
    if #ids > 0 then
      call('ZREM', F, unpack(ids))
      swept = true
    end
  end
  return swept
end

local function write_clock()
  if g[2] ~= now_text then call('HSET', G, 'clock', now_text) end
end

-- settle_clock ends every script that wrote: the clock never falls behind this. It writes
-- after all else, because a server out of memory refuses it unless something was written.
local function settle_clock()
  write_clock()
  sweep()
end

-- hint tells waiting consumers of an earlier time to look than they know; was is the head
-- before. Who may not publish has consumers that are up to a second late.
local function hint(was, sender)
  if earliest < was then
    redis.pcall('PUBLISH', string.gsub(T, 't$', 'hint', 1), sender .. ' ' .. int(earliest))
    return earliest
  end
  return NEVER
end

-- before orders IDs by their bytes, as sorted sets do; the < of Lua follows the locale.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end
