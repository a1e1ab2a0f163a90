-- What all scripts of a partition share; it stands behind settings.lua and in front of each of
-- them.

-- A key of a wrong type fails here, before anything is written. What is counted is as it was
-- when the script began, but for dead_count and finished_count, which never miss anything.
local waiting_count, leased_count, dead_count = call('ZCARD', T), call('ZCARD', L), call('ZCARD', D)
local finished_count = call('ZCARD', F)
local lapsed_count = call('ZCARD', X)
call('HLEN', M)
local state_count = math.max(call('HLEN', S) - 1, 0) -- without TABLE_FIELD
if H then
  call('HLEN', H)
  call('ZCARD', U)
end

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
local gone = more[2] and whole(more[2], 'gone') or -NEVER
if cfg.dead_retention > 0 then
  gone = math.max(gone, now - cfg.dead_retention)
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
  return math.min(t, ceil(call('ZRANGE', L, 0, 0, 'WITHSCORES')[2] or NEVER))
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
local TIMES, TIMES_BYTES = '<dd', 16 -- of version 2, behind STATE: when the message was created, and its lease began
local REMEMBER_BYTES = STATE_BYTES + TIMES_BYTES + 8 -- of version 3: behind these, for how long the ID is remembered

-- state_version is that of a state, false for one that cannot be read.
local function state_version(raw)
  local version = #raw >= STATE_BYTES and string.byte(raw)
  return (version == 1 or version == 2 and #raw >= STATE_BYTES + TIMES_BYTES or version == 3 and #raw >= REMEMBER_BYTES) and version
end

-- state_remember is for how long a state says that the ID is remembered; nil: as long as the topic says.
local function state_remember(raw)
  if string.byte(raw) ~= 3 then return nil end
  return (struct.unpack('<d', raw, REMEMBER_BYTES - 7))
end

local function has(flags, flag) return math.floor(flags / flag) % 2 == 1 end

-- A token tells when its lease began, but where tokens were ahead of the clock: 8 of them are a ms. A state of version 1
-- has in its flags by how many ms the token was ahead, at most NOT_KNOWN, which tells nothing.
local AHEAD, NOT_KNOWN = 32, 7
local function token_time(token) return floor(token / (8 * TOKEN_STEP)) end

local function decode_state(id, raw)
  local version = state_version(raw)
  local flags = version and string.byte(raw, 2)
  local more = version == 3 and REMEMBER_BYTES or version == 2 and STATE_BYTES + TIMES_BYTES or STATE_BYTES
  local rest = more
  if flags and has(flags, FIRST) then rest = rest + 8 end
  if flags and has(flags, EXPIRES) then rest = rest + 8 end
  if not flags or #raw < rest then
    corrupt('state of message ' .. id .. ' in ' .. S .. ' cannot be read')
  end
  local _, _, reason, failed, attempt, token, due, max = struct.unpack(STATE, raw)
  local first, after, created, began = due, 0, nil, nil
  if version > 1 then
    created, began = struct.unpack(TIMES, raw, STATE_BYTES + 1)
  elseif token ~= 0 and floor(flags / AHEAD) < NOT_KNOWN then
    began = token_time(token) - floor(flags / AHEAD)
  end
  if has(flags, FIRST) then first = struct.unpack('<d', raw, more + 1) end
  if has(flags, EXPIRES) then after = struct.unpack('<d', raw, rest - 7) end
  return {
    drop = has(flags, DROP), cancel = has(flags, CANCEL), moved = has(flags, MOVED),
    reason = reason, failed = failed, attempt = attempt, max = max,
    token = token, due = due, first = first, after = after, failures = string.sub(raw, rest + 1),
    created = created, began = began, remember = state_remember(raw),
  }
end

-- state_token is the token in a state, 0 unless the message is leased.
local function state_token(id, raw)
  if not state_version(raw) then
    corrupt('state of message ' .. id .. ' in ' .. S .. ' cannot be read')
  end
  return (struct.unpack('<d', raw, 9))
end

local function encode_state(st)
  local flags = (st.drop and DROP or 0) + (st.cancel and CANCEL or 0) + (st.after > 0 and EXPIRES or 0) + (st.moved and MOVED or 0)
  local version, more = 1, ''
  if st.created then
    version, more = 2, struct.pack(TIMES, st.created, st.token ~= 0 and st.began or 0)
    if st.remember then version, more = 3, more .. struct.pack('<d', st.remember) end
  elseif st.token ~= 0 then
    local ahead = token_time(st.token) - (st.began or 0)
    flags = flags + AHEAD * ((ahead < 0 or ahead > NOT_KNOWN) and NOT_KNOWN or ahead)
  end
  if st.first ~= st.due then flags, more = flags + FIRST, more .. struct.pack('<d', st.first) end
  if st.after > 0 then more = more .. struct.pack('<d', st.after) end
  return struct.pack(STATE, version, flags, st.reason, st.failed, st.attempt, st.token, st.due, st.max) .. more .. st.failures
end

local MESSAGE = '<BddI4'

-- message_flags makes sure that a message can be read.
local function message_flags(id, raw)
  local flags = raw and #raw >= MESSAGE_BYTES and string.byte(raw) - PLAIN
  if not flags or flags < 0 or flags >= 32 then
    corrupt('message ' .. id .. ' in ' .. M .. ' is missing or cannot be read')
  end
  return flags
end

-- created_of is when a message was created, for a state where stories are kept or that has a remember, and else nil.
local function created_of(raw, remember)
  if cfg.finished_retention == 0 and not remember then return nil end
  return (struct.unpack('<d', raw, 2))
end

-- fresh is the state of a message that was never claimed. due is the time that it waits for,
-- if it is not the one in the message.
local function fresh(id, raw, due)
  local flags = message_flags(id, raw)
  local _, _, first, max = struct.unpack(MESSAGE, raw)
  local after, behind = 0, MESSAGE_BYTES + 1
  if has(flags, EXPIRES) then after, behind = struct.unpack('<d', raw, behind) end
  local remember = has(flags, REMEMBER) and struct.unpack('<d', raw, behind) or nil
  due = due or first
  return {
    drop = has(flags, DROP), cancel = false, moved = due ~= first, reason = 0, failed = 0, attempt = 0, max = max,
    token = 0, due = due, first = due, after = after, failures = '', created = created_of(raw, remember), remember = remember,
  }
end

-- A usual lease is that of a message without a state, which is at its first attempt. Its score is
-- no whole number, and tells its token; that of any other lease is its end.
local function is_usual(score) return score % 1 ~= 0 end

-- usual_state is the state of a message under a usual lease.
local function usual_state(id, raw, score)
  if not is_usual(score) then corrupt('message ' .. id .. ' in ' .. L .. ' has no state') end
  local st = fresh(id, raw)
  st.attempt, st.token, st.began = 1, lease_token(score)
  return st
end

-- add_usual_states reads the states of those messages, of some without a state, that are under a usual lease.
local function add_usual_states(out, ids)
  if #ids == 0 or leased_count == 0 then return end
  local leased, scores = {}, {}
  for i, score in ipairs(call('ZMSCORE', L, unpack(ids))) do
    if score and is_usual(tonumber(score)) then
      leased[#leased + 1], scores[#scores + 1] = ids[i], tonumber(score)
    end
  end
  if #leased == 0 then return end
  for i, raw in ipairs(call('HMGET', M, unpack(leased))) do
    if raw then out[leased[i]] = usual_state(leased[i], raw, scores[i]) end
  end
end

-- states reads the states of many messages; false for one that has none.
local function states(ids)
  local out, without = {}, {}
  if #ids == 0 then return out end
  for i, raw in ipairs(call('HMGET', S, unpack(ids))) do
    out[ids[i]] = raw and decode_state(ids[i], raw)
    if not raw then without[#without + 1] = ids[i] end
  end
  add_usual_states(out, without)
  return out
end

-- state_of is the state of a message in a set as it is stored, or as it would be; '' if it was never claimed.
local function state_of(id, raw, from)
  local state = call('HGET', S, id)
  if state or from ~= L then return state or '' end
  return encode_state(usual_state(id, raw, tonumber(call('ZSCORE', L, id))))
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
  if max == 0 then max = cfg.max_attempts end
  return st.attempt < max
end

local function expired(st)
  return st.after > 0 and math.min(st.first + st.after, MAX_DUE + 1) <= now
end

-- LAPSE is how many leases that have run out one script puts into x, so that none takes long however many there are.
local LAPSE = 200

-- lapsed returns how many leases have run out, and whether all of these are in x by now; if not, the caller
-- comes again. A lease that is given or extended ends later than all that have run out, so those in x are
-- the first ones of l.
local function lapsed()
  local all = leased_count > 0 and call('ZCOUNT', L, '-inf', now_text) or 0
  if all <= lapsed_count then return all, true end
  local ids, times = call('ZRANGE', L, lapsed_count, math.min(all, lapsed_count + LAPSE) - 1), {}
  local known = states(ids)
  for i, id in ipairs(ids) do
    if not known[id] then corrupt('message ' .. id .. ' in ' .. L .. ' has no state') end
    times[2 * i - 1], times[2 * i] = int(known[id].due), id
  end
  make_room()
  call('ZADD', X, unpack(times))
  write_clock()
  lapsed_count = lapsed_count + #ids
  return all, lapsed_count == all
end

-- leave takes messages out of l.
local function leave(...)
  call('ZREM', L, ...)
  if lapsed_count > 0 then call('ZREM', X, ...) end
end

-- leave_set takes a message out of a set.
local function leave_set(id, from)
  if from == L then leave(id) elseif from then call('ZREM', from, id) end
end

-- Stories of finished messages, where the topic keeps them: see stories.lua.

local stories, story_ids = {}, {} -- those of this script: ID, story, ID, story ...; and the IDs

-- tell notes the story of a message that finishes now. st is its state.
local function tell(id, st, outcome)
  if cfg.finished_retention == 0 then return end
  local kind, more, n = STORY_VERSION + outcome, '', #stories
  local delivered = st.token ~= 0 and (st.began or 0) > 0
  if delivered then kind, more = kind + DELIVERED, pack('<I5', math.max(now - st.began, 0)) end
  if st.first ~= st.due then kind, more = kind + MOVED_ONCE, more .. pack('<i7', st.first) end
  if st.failed > 0 or st.attempt ~= (delivered and 1 or 0) then
    kind, more = kind + ATTEMPTS, more .. pack('<I4B', st.attempt, st.failed) .. st.failures
  end
  stories[n + 1], stories[n + 2] = id, pack(STORY, kind, now, cfg.finished_retention, st.created, st.due) .. more
  story_ids[#story_ids + 1] = id
end

-- write_stories writes the stories of this script, behind something that took out.
local function write_stories()
  if #stories == 0 then return end
  put_stories(story_ids, stories, cfg.finished_retention)
  stories, story_ids = {}, {}
end

-- READ is how many bytes of messages one script reads for their stories.
local READ = 1048576

-- complete reads the states of messages that have none. Where stories are kept, each then tells when its message was
-- created. known are the states. It reports false when that would be too much at once: then some
-- messages have such a state by now, and the caller comes again.
local function complete(ids, known)
  local keeps = cfg.finished_retention > 0
  local some, bytes, all = {}, 0, true
  for _, id in ipairs(ids) do
    if not known[id] or keeps and not known[id].created then
      local n = call('HSTRLEN', M, id)
      all = #some == 0 or bytes + n <= READ
      if not all then break end
      if n > 0 then some[#some + 1], bytes = id, bytes + n end
    end
  end
  local records = {}
  for i, raw in ipairs(#some > 0 and call('HMGET', M, unpack(some)) or {}) do
    local id = some[i]
    local st = known[id] or fresh(id, raw, tonumber(call('ZSCORE', T, id) or nil))
    message_flags(id, raw)
    st.created, known[id] = created_of(raw), st
    records[#records + 1], records[#records + 2] = id, encode_state(st)
  end
  if all then return true end
  make_room()
  put_states(records)
  write_clock()
  return false
end

-- Transitions. Each takes the message from where it is to where it belongs.

local earliest = NEVER -- the earliest time at which a message that was moved needs attention

-- wait puts a message on the timeline; it was in the given set, if any. Whoever has given it
-- another due time has set moved. The state of one that is as if it had never been claimed
-- is not kept. It is if it tells for how long the ID is remembered.
local function wait(id, st, from)
  if from ~= T then leave_set(id, from) end
  st.token, st.cancel, st.reason = 0, false, 0
  call('ZADD', T, int(st.due), id)
  if st.attempt == 0 and st.failed == 0 and not st.moved and not st.remember then
    call('HDEL', S, id)
  else
    put_states({id, encode_state(st)})
  end
  earliest = math.min(earliest, st.due)
end

-- die makes a message dead; it was in the given set, if any.
local function die(id, st, from, reason)
  leave_set(id, from)
  st.token, st.cancel, st.reason = 0, false, reason
  call('ZADD', D, now_text, id)
  put_states({id, encode_state(st)})
  dead_count = dead_count + 1
end

-- remove takes a message out without a trace; it was in the given set, if any.
local function remove(id, from)
  leave_set(id, from)
  call('HDEL', M, id)
  call('HDEL', S, id)
end

-- finish takes out a message that was acked, cancelled or dropped. st is its state, which is known where stories are
-- kept, and of a message with a remember.
local function finish(id, from, st, outcome)
  tell(id, st, outcome)
  remove(id, from)
  local keep = st and st.remember or cfg.dedupe_window
  if keep > 0 then
    call('ZADD', F, int(now + keep), id)
    finished_count = finished_count + 1
  end
end

-- SWEEP is how many dead messages and finished IDs one script lets go of: more than it can add,
-- so that they do not gather.
local SWEEP = 512

-- sweep lets go of some dead messages, finished IDs and stories that were kept long enough, and reports
-- whether there were any.
local function sweep()
  local swept = H and sweep_stories() or false
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

-- settle_clock ends every script that wrote: the clock never falls behind this. It writes
-- after all else, because a server out of memory refuses it unless something was written.
local function settle_clock()
  write_stories()
  write_clock()
  sweep()
end

-- notify tells waiting consumers of an earlier time to look than they know; was is the head
-- before.
local function notify(was)
  if earliest >= was or earliest > now + NEAR then return NEVER end
  publish(earliest)
  return earliest
end

-- before orders IDs by their bytes, as sorted sets do; the < of Lua follows the locale.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end
