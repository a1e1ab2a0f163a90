-- Functions that the scripts of a partition share, all but refuse, confirm and forget. This file
-- comes after settings.lua and before the script itself.

-- These reads fail for a key of a wrong type, before anything is written. The counts are those at
-- the beginning of the script; only dead_count, finished_count and lapsed_count grow with what the
-- script adds, so that 0 always means that there is nothing.
local waiting_count, leased_count, dead_count = call('ZCARD', T), call('ZCARD', L), call('ZCARD', D)
local finished_count = call('ZCARD', F)
local lapsed_count = call('ZCARD', X)
call('HLEN', M)
local state_count = math.max(call('HLEN', S) - 1, 0) -- without TABLE_FIELD
if H then
  call('HLEN', H)
  call('ZCARD', U)
end
if events then
  for _, set in ipairs({events.t, events.l}) do call('ZCARD', set) end
  call('HLEN', events.m)
end

if keyed.names then keyed.own = keyed.new(keyed.names, T, G) end

-- raise_token makes all further tokens of this partition greater than above.
local function raise_token(above)
  if above > cfg.token then cfg.token = above - above % TOKEN_STEP + TOKEN_STEP + cfg.token % TOKEN_STEP end
end

-- Messages that died at gone or before are past their retention. No script treats them as there,
-- though a sweep may still have to delete them.
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

-- next_due_time returns when the next message becomes due or the next lease ends, or NEVER. If
-- something is due by now, it returns any time up to now, which is enough for a caller that then
-- claims at once. waiting and leased name the sets of another partition than this one.
local function next_due_time(waiting, leased)
  if keyed.own and not waiting then return keyed.own.next_due(L) end
  local t = tonumber(call('ZRANGE', waiting or T, 0, 0, 'WITHSCORES')[2] or NEVER)
  if t <= now then return t end
  return math.min(t, ceil(call('ZRANGE', leased or L, 0, 0, 'WITHSCORES')[2] or NEVER))
end

-- States.

-- Redis keeps a hash of few and short fields as a list, and reads the list from end to end for each
-- field. A hash with one long value is a table instead. So the first state comes with a field that
-- has a long value.
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
-- TIMES follow STATE in version 2: when the message was created, and its lease began. In version 3
-- a double follows these: for how long the ID is remembered. BYTES is how many bytes a state of
-- each version has up to there.
local TIMES = '<dd'
local BYTES = {28, 28 + 16, 28 + 16 + 8}

-- A state of a lease that does not say by its other fields when the lease was given, or was
-- extended since, has LEASE_TIMES added to its version. Then it has two further times behind those
-- of its version: when the lease was given or last extended, and when it began.
local LEASE_TIMES = 16

-- state_version returns the version of a state, or false if it cannot be read, and whether
-- LEASE_TIMES is added to it.
local function state_version(raw)
  local version = #raw >= BYTES[1] and string.byte(raw)
  local times = version and version > LEASE_TIMES
  if times then version = version - LEASE_TIMES end
  return version and BYTES[version] and #raw >= BYTES[version] + (times and 16 or 0) and version, times
end

-- state_remember returns for how long a state has the ID remembered, in ms, or nil if the topic's
-- setting holds.
local function state_remember(raw)
  if string.byte(raw) % LEASE_TIMES ~= 3 then return nil end
  return (struct.unpack('<d', raw, BYTES[3] - 7))
end

local function has(flags, flag) return math.floor(flags / flag) % 2 == 1 end

-- A token divided by TOKEN_STEP counts 8 per ms, so that token_time is when the lease began, unless
-- tokens were ahead of the clock. A state of version 1 has in its flags by how many ms the token
-- was ahead, if that is at most MOST_AHEAD.
local AHEAD, MOST_AHEAD = 32, 7
local function token_time(token) return floor(token / (8 * TOKEN_STEP)) - shift end

-- In a state the field of the token has, if there is no lease, 0 less the time since which the
-- message waits, and 0 if somebody named its due time. That time, since in a decoded state, is when
-- the delay began at whose end the message is due. since of a leased message is when its lease was
-- given or last extended. step.lua says what it is for.
local function decode_state(id, raw)
  local version, times = state_version(raw)
  local flags = version and string.byte(raw, 2)
  local more = version and BYTES[version] + (times and 16 or 0)
  local rest = more
  if flags and has(flags, FIRST) then rest = rest + 8 end
  if flags and has(flags, EXPIRES) then rest = rest + 8 end
  if not flags or #raw < rest then
    corrupt('state of message ' .. id .. ' in ' .. S .. ' cannot be read')
  end
  local _, _, reason, failed, attempt, token, due, max = struct.unpack(STATE, raw)
  local first, after, since, created, began = due, 0, nil, nil, nil
  if version > 1 then created, began = struct.unpack(TIMES, raw, BYTES[1] + 1) end
  if token <= 0 then
    token, since = 0, 0 - token
  elseif times then
    since, began = struct.unpack(TIMES, raw, more - 16 + 1)
  else
    began = began or token_time(token) - floor(flags / AHEAD)
    since = began
  end
  if has(flags, FIRST) then first = struct.unpack('<d', raw, more + 1) end
  if has(flags, EXPIRES) then after = struct.unpack('<d', raw, rest - 7) end
  return {
    drop = has(flags, DROP), cancel = has(flags, CANCEL), moved = has(flags, MOVED),
    reason = reason, failed = failed, attempt = attempt, max = max,
    token = token, since = since, due = due, first = first, after = after, failures = string.sub(raw, rest + 1),
    created = created, began = began, remember = state_remember(raw),
  }
end

-- state_token returns the token in a state; it is 0 unless the message is leased.
local function state_token(id, raw)
  if not state_version(raw) then
    corrupt('state of message ' .. id .. ' in ' .. S .. ' cannot be read')
  end
  return math.max(struct.unpack('<d', raw, 9), 0)
end

-- encode_state encodes a state. With explicit it says itself when its lease was given.
local function encode_state(st, explicit)
  local flags = (st.drop and DROP or 0) + (st.cancel and CANCEL or 0) + (st.after > 0 and EXPIRES or 0) + (st.moved and MOVED or 0)
  local version, more, leased = 1, '', st.token ~= 0
  local times = leased and (explicit or st.since ~= st.began)
  if st.created then
    version, more = 2, struct.pack(TIMES, st.created, leased and st.began or 0)
    if st.remember then version, more = 3, more .. struct.pack('<d', st.remember) end
  elseif leased then
    local ahead = token_time(st.token) - st.began
    times = times or ahead < 0 or ahead > MOST_AHEAD
    if not times then flags = flags + AHEAD * ahead end
  end
  if times then version, more = version + LEASE_TIMES, more .. struct.pack(TIMES, st.since, st.began) end
  if st.first ~= st.due then flags, more = flags + FIRST, more .. struct.pack('<d', st.first) end
  if st.after > 0 then more = more .. struct.pack('<d', st.after) end
  return struct.pack(STATE, version, flags, st.reason, st.failed, st.attempt, leased and st.token or 0 - st.since, st.due, st.max) .. more .. st.failures
end

local MESSAGE = '<BddI4'

-- message_flags returns the flags of a message, and fails if the message is missing or cannot be
-- read.
local function message_flags(id, raw)
  local flags = raw and #raw >= MESSAGE_BYTES and string.byte(raw) - PLAIN
  if not flags or flags < 0 or flags >= 32 then
    corrupt('message ' .. id .. ' in ' .. M .. ' is missing or cannot be read')
  end
  return flags
end

-- created_of returns the time at which a message was created, for its state. It returns nil where a
-- state need not have that time: the topic keeps no finished records, the script may have no events
-- to tell of, and the message has no remember.
local function created_of(raw, remember)
  if cfg.finished_retention == 0 and not remember and not events then return nil end
  return (struct.unpack('<d', raw, 2))
end

-- fresh makes the state of a message that was never claimed. due is the time that the message waits
-- for, or nil if that is the one in the message.
local function fresh(id, raw, due)
  local flags = message_flags(id, raw)
  local _, created, first, max = struct.unpack(MESSAGE, raw)
  local after, behind = 0, MESSAGE_BYTES + 1
  if has(flags, EXPIRES) then after, behind = struct.unpack('<d', raw, behind) end
  local remember = has(flags, REMEMBER) and struct.unpack('<d', raw, behind) or nil
  due = due or first
  return {
    drop = has(flags, DROP), cancel = false, moved = due ~= first, reason = 0, failed = 0, attempt = 0, max = max,
    token = 0, since = has(flags, NAMED) and 0 or created, due = due, first = due, after = after, failures = '',
    created = created_of(raw, remember), remember = remember,
  }
end

-- A compact lease is the lease of a message without a state, which is at its first attempt. Its
-- score is no whole number and holds the token as well. The score of any other lease is the end of
-- the lease, a whole number.
local function is_compact(score) return score % 1 ~= 0 end

-- compact_state makes the state of a message under a compact lease with that score.
local function compact_state(id, raw, score)
  if not is_compact(score) then corrupt('message ' .. id .. ' in ' .. L .. ' has no state') end
  local st = fresh(id, raw)
  st.attempt, st.token, st.began = 1, lease_token(score)
  st.since = st.began
  return st
end

-- add_compact_states adds to out the states of those messages that have a compact lease. None of
-- the IDs has a stored state.
local function add_compact_states(out, ids)
  if #ids == 0 or leased_count == 0 then return end
  local leased, scores = {}, {}
  for i, score in ipairs(call('ZMSCORE', L, unpack(ids))) do
    if score and is_compact(tonumber(score)) then
      leased[#leased + 1], scores[#scores + 1] = ids[i], tonumber(score)
    end
  end
  if #leased == 0 then return end
  for i, raw in ipairs(call('HMGET', M, unpack(leased))) do
    if raw then out[leased[i]] = compact_state(leased[i], raw, scores[i]) end
  end
end

-- states returns the states of many messages by ID; a message that is not there, or has neither a
-- state nor a compact lease, has false or nil.
local function states(ids)
  local out, without = {}, {}
  if #ids == 0 then return out end
  for i, raw in ipairs(call('HMGET', S, unpack(ids))) do
    out[ids[i]] = raw and decode_state(ids[i], raw)
    if not raw then without[#without + 1] = ids[i] end
  end
  add_compact_states(out, without)
  return out
end

-- state_of returns the encoded state of a message in a set: as it is stored, or made from a compact
-- lease. It returns '' for a message that waits as it was pushed and has no state.
local function state_of(id, raw, from)
  local state = call('HGET', S, id)
  if state or from ~= L then return state or '' end
  return encode_state(compact_state(id, raw, tonumber(call('ZSCORE', L, id))))
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

-- LAPSE bounds how many leases that have run out one script puts into x, so that no script takes
-- long however many there are.
local LAPSE = 200

-- lapsed puts leases that have run out into x. It returns how many leases have run out, and whether
-- all of them are in x by now; if not, the script must answer PUNCTUAL_MORE, so that it is sent
-- again. The leases in x are always the first ones of l, because a lease that is given or extended
-- ends later than all that have run out.
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

-- remove_leases takes messages out of l, and out of x if they are there.
local function remove_leases(...)
  cfg.made_room = cfg.max_leases > 0 and leased_count >= cfg.max_leases -- for notify
  call('ZREM', L, ...)
  if lapsed_count > 0 then call('ZREM', X, ...) end
end

-- delete_records deletes what m, s and the keys of a topic with keys have of messages.
local function delete_records(ids)
  if keyed.own then keyed.own.forget(ids) end
  call('HDEL', M, unpack(ids))
  call('HDEL', S, unpack(ids))
end

-- remove_from takes a message out of the set from, or does nothing if that is nil.
local function remove_from(id, from)
  if from == L then remove_leases(id) elseif from then call('ZREM', from, id) end
end

-- Finished records, where the topic keeps them: see finished_records.lua.

-- What this script has to write: ID, finished record, ID, finished record ...; and the IDs.
local finished, finished_ids = {}, {}

-- save_finished makes the finished record of a message that finishes now; write_finished writes it.
-- st is the state of the message.
local function save_finished(id, st, outcome)
  if cfg.finished_retention == 0 then return end
  local kind, more, n = FINISHED_VERSION + outcome, '', #finished
  local delivered = st.token ~= 0 and (st.began or 0) > 0
  if delivered then kind, more = kind + DELIVERED, pack('<I5', math.max(now - st.began, 0)) end
  if st.first ~= st.due then kind, more = kind + MOVED_ONCE, more .. pack('<i7', st.first) end
  if st.failed > 0 or st.attempt ~= (delivered and 1 or 0) then
    kind, more = kind + ATTEMPTS, more .. pack('<I4B', st.attempt, st.failed) .. st.failures
  end
  finished[n + 1], finished[n + 2] = id, pack(FINISHED, kind, now, cfg.finished_retention, st.created, st.due) .. more
  finished_ids[#finished_ids + 1] = id
end

-- write_finished writes the finished records of this script. A command that removes must come
-- before it: see make_room.
local function write_finished()
  if #finished == 0 then return end
  put_finished(finished_ids, finished, cfg.finished_retention)
  finished, finished_ids = {}, {}
end

-- READ is how many bytes of messages one script reads at most to complete their states, but it
-- reads at least one message.
local READ = 1048576

-- complete adds to known, which has states by ID, the states of messages that have none. Where
-- finished records are kept, or events told, complete also adds the time of creation to states
-- without one. What it adds is read from the messages, which may be long. It reports false if there
-- is too much to read at once: then it has stored the states of those that it has read, and the
-- script must answer PUNCTUAL_MORE, so that it is sent again.
local function complete(ids, known)
  local keeps = cfg.finished_retention > 0 or events
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

-- Transitions: each takes a message out of the set in which it is, and puts it where it belongs.

local earliest = NEVER -- the earliest time at which a message that was moved needs attention

-- wait puts a message on the timeline; the message was in the set from, if any. A caller that
-- changes the due time must set moved, and each caller sets since.
local function wait(id, st, from)
  if from ~= T then remove_from(id, from) end
  st.token, st.cancel, st.reason = 0, false, 0
  call('ZADD', T, int(st.due), id)
  put_states({id, encode_state(st)})
  if keyed.own then keyed.own.move(id, st) end
  earliest = math.min(earliest, st.due)
end

-- die makes a message dead; the message was in the set from, if any.
local function die(id, st, from, reason)
  if events then events.died(id, st, reason) end
  remove_from(id, from)
  st.token, st.since, st.cancel, st.reason = 0, 0, false, reason
  call('ZADD', D, now_text, id)
  put_states({id, encode_state(st)})
  if keyed.own then keyed.own.move(id, st) end
  dead_count = dead_count + 1
end

-- remove deletes a message and its state; the message was in the set from, if any.
local function remove(id, from)
  remove_from(id, from)
  delete_records({id})
end

-- forgotten returns the score in f of an ID whose message finishes now, or nil if the ID is not
-- remembered. remember is for how long the message asks to have its ID remembered, or nil if the
-- topic's window holds. Then the score is the time at which the ID is forgotten, otherwise a part
-- of a millisecond less. The part tells step.lua about for how long: a quarter, and a 1024th for
-- each eighth of an octave, rounded up.
local function forgotten(remember)
  if remember then
    local part = 0.25 + math.max(0, math.ceil(8 * math.log(remember) / math.log(2))) / 1024
    return int(now + remember - 1) .. string.sub(string.format('%.10f', part), 2)
  end
  return cfg.dedupe_window > 0 and int(now + cfg.dedupe_window) or nil
end

-- finish deletes a message that was cancelled or dropped, saves its finished record and has its ID
-- remembered, where the topic or the message asks for that. (settle.lua does the same for acked
-- messages, many at a time.) st is the state of the message; it may be nil only if the topic keeps
-- no finished records and tells of no events, and the message has no remember.
local function finish(id, from, st, outcome)
  save_finished(id, st, outcome)
  if events then events.ended(id, st, outcome) end
  remove(id, from)
  local till = forgotten(st and st.remember)
  if till then
    call('ZADD', F, till, id)
    finished_count = finished_count + 1
  end
end

-- SWEEP is how many dead messages, and how many finished IDs, one script deletes at most. That is
-- more than a script can add, so that they do not pile up.
local SWEEP = 512

-- sweep deletes some dead messages, finished IDs and finished records that are past their
-- retention, and reports whether there were any.
local function sweep()
  local swept = H and sweep_finished() or false
  if keyed.own then swept = keyed.own.sweep() or swept end
  if dead_count > 0 and gone > -NEVER then
    local ids = call('ZRANGEBYSCORE', D, '-inf', int(gone), 'LIMIT', 0, SWEEP)
    if #ids > 0 then
      call('ZREM', D, unpack(ids))
      delete_records(ids)
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

-- settle_clock is called by a script on its general path once it has changed messages or stored
-- settings. It writes the finished records, the events and the time, so that the clock never falls
-- behind this change, and sweeps. It comes after the changes, because a server out of memory
-- refuses these additions unless something was written before.
local function settle_clock()
  write_finished()
  if events then events.write() end
  if keyed.own then keyed.own.arrange() end
  write_clock()
  sweep()
end

-- notify publishes the earliest time at which a message that was moved needs attention, unless that
-- is more than NEAR ahead, or not before was: the next due time before the script changed anything.
-- If the script has ended a lease of a topic that had as many as it may, the claims that wait for
-- room are notified in any case. notify returns the time that it has published, or NEVER.
local function notify(was)
  if keyed.own and earliest > -NEVER then earliest = next_due_time() end
  if cfg.made_room then was, earliest = NEVER, now end
  if earliest >= was or earliest > now + NEAR then return NEVER end
  publish(earliest)
  return earliest
end

-- before orders IDs by their bytes, as sorted sets do, because the < of Lua follows the locale.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end
