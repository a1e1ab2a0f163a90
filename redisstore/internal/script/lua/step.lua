-- step makes a step of the store's clock back in a partition, piece by piece. What
-- storekit/lifecycle.Step says of a message is done here. A piece is at most PIECE members of a
-- set, so that no script takes long.
--
-- First come leases, the dead, remembered IDs and finished records. Until these are done no other
-- script runs in the partition: each answers PUNCTUAL_STEP. Nothing that was decided by the time
-- before comes after the step, and no lease is given before all leases are those after the step.
-- The partition has the era of the step from then on.
--
-- Then come the messages that wait, of which there may be many, in the order of their due times.
-- Other scripts run meanwhile. A message moves if since lies in the future: then its delay was set
-- while the clock was ahead. A message that has moved waits since a time before the step, so the
-- pieces may be made again. The next step of the partition begins when they are done.
--
-- KEYS  of a partition
-- ARGV  3 from, 4 to, in ms: the step, as the hash of the store has it; empty if that has lost it.
--       Then it is the one from the partition's clock to the server's. The era in ARGV[1] is that
--       after the step
-- Reply {1 if a step is under way, 2 if messages that wait are left, else 0}
local PIECE, BODIES = 200, 262144 -- BODIES bounds the bytes of messages that a piece reads, but it reads one message at least
local LAST = '\255' -- behind every ID
local PLACE, PLACE_END = '<ddddd', 57 -- in the field stepped, behind era and shift: the era after the step, from, to, phase, last score
local MOVING, MOVING_END = '<ddd', 25 -- in the field moving: from, to, last score. In both the ID with that score follows

-- members returns up to PIECE members of a set behind a place, as {id, score}.
local function members(set, at, id)
  local first, out = rank_behind(set, at, id), {}
  local got = call('ZRANGE', set, first, first + PIECE - 1, 'WITHSCORES')
  for i = 1, #got, 2 do out[#out + 1] = {got[i], tonumber(got[i + 1])} end
  return out
end

-- raw_messages reads the messages of the first of some IDs, as many as BODIES allows, into out by
-- ID. It returns how many of all are read or need not be read, which needs says.
local function raw_messages(all, needs, out)
  local ids, bytes = {}, 0
  local n = #all
  for i, m in ipairs(all) do
    if needs(m) then
      bytes = bytes + call('HSTRLEN', M, m[1])
      if #ids > 0 and bytes > BODIES then
        n = i - 1
        break
      end
      ids[#ids + 1] = m[1]
    end
  end
  for i, raw in ipairs(#ids > 0 and call('HMGET', M, unpack(ids)) or {}) do
    message_flags(ids[i], raw)
    out[ids[i]] = raw
  end
  return n
end

local function raw_states(all)
  local ids, out = {}, {}
  for i, m in ipairs(all) do ids[i] = m[1] end
  for i, raw in ipairs(#ids > 0 and call('HMGET', S, unpack(ids)) or {}) do out[ids[i]] = raw end
  return out
end

-- carry moves what is left of a delay, or of a lease, as lifecycle.Step.Carry does. till is the end
-- of the lease, or nil. carry returns the end of the lease after the step.
local function carry(st, from, to, till)
  local back = from - to
  local due = till and math.min(st.due, st.since - back) or st.due > to and st.due - back or st.due
  if st.first == st.due then st.first = due end
  st.due, st.moved, st.since = due, true, st.since - back
  if st.began and st.began > to then st.began = st.began - back end
  return till and till - back
end

-- The phases of a step before the messages that wait. Each goes through the members of a set from a
-- score on, low, or from keep behind the time after the step. Its work changes the first of some
-- members and returns how many; the phase ends when there are none.
local phases = {}

-- All leases become leases with states that say when they were given, because the score of a
-- compact lease tells its token only with the shift from before the step.
phases[1] = {set = L, low = -NEVER, work = function(all, from, to)
  local known, raws = raw_states(all), {}
  local n = raw_messages(all, function(m) return not known[m[1]] end, raws)
  local leases, records = {}, {}
  for i = 1, n do
    local id, score = all[i][1], all[i][2]
    local st = known[id] and decode_state(id, known[id]) or compact_state(id, raws[id], score)
    local till = ceil(score)
    if st.since > to then till = carry(st, from, to, till) end
    leases[2 * i - 1], leases[2 * i] = int(till), id
    records[2 * i - 1], records[2 * i] = id, encode_state(st, true)
  end
  if n > 0 then
    call('ZADD', L, unpack(leases))
    put_states(records)
  end
  return n
end}

-- set_back adds members to a set again, each with the time that at makes of the one before.
local function set_back(set, all, at)
  local times = {}
  for i, m in ipairs(all) do times[2 * i - 1], times[2 * i] = string.format('%.17g', at(m[2])), m[1] end
  call('ZADD', set, unpack(times))
  return #all
end

-- The dead that are past their retention by the time before the step are deleted, because gone is a
-- time before the step, and those that stay may move behind it.
phases[2] = {set = D, low = -NEVER, work = function(all)
  local ids = {}
  for i, m in ipairs(all) do
    if m[2] > gone then break end
    ids[i] = m[1]
  end
  if #ids > 0 then
    call('ZREM', D, unpack(ids))
    delete_records(ids)
  end
  return #ids
end}

phases[3] = {set = D, keep = 0, work = function(all, from, to)
  return set_back(D, all, function(died) return died - (from - to) end)
end}

-- Of an ID only the time is known at which it is forgotten, and for how long it is remembered: by
-- the topic's window, or about, where its message said that (forgotten in prelude.lua). It moves if
-- its message certainly finished while the clock was ahead. Otherwise it may be remembered for up
-- to a tenth longer than its message said.
phases[4] = {set = F, keep = cfg.dedupe_window, work = function(all, from, to)
  return set_back(F, all, function(till)
    local part = till % 1
    if part > 0 and math.ceil(till) - 2 ^ ((part - 0.25) * 128) <= to then return till end
    return till - (from - to)
  end)
end}

-- A member of u has the IDs of records that one script has written.
phases[5] = {set = U, keep = cfg.finished_retention, work = function(all, from, to)
  local n = 0
  for i, m in ipairs(all) do
    local ids = {}
    ids_of(m[1], ids)
    n = n + #ids
    if i > 1 and n > PIECE then return i - 1 end
    local records, till = {}, nil
    for j, raw in ipairs(#ids > 0 and call('HMGET', H, unpack(ids)) or {}) do
      if raw and finished_until(raw) == m[2] then
        local kind, at, keep, created, due = unpack_from(FINISHED, raw)
        if at > to then
          till = m[2] - (from - to)
          local rest = string.sub(raw, FINISHED_BYTES + 1)
          local took = has(kind, DELIVERED) and unpack_from('<I5', rest)
          if took and at - took <= to then rest = pack('<I5', math.max(took - (from - to), 0)) .. string.sub(rest, 6) end
          records[#records + 1], records[#records + 2] = ids[j], pack(FINISHED, kind, at - (from - to), keep, created, due) .. rest
        end
      end
    end
    if till then
      call('HSET', H, unpack(records))
      call('ZADD', U, int(till), m[1])
    end
  end
  return #all
end}

-- move_waiting moves some messages that wait, and returns whether others are left.
local function move_waiting(moving)
  local from, to, at = unpack_from(MOVING, moving)
  local all = members(T, at, string.sub(moving, MOVING_END))
  make_room()
  if #all == 0 then
    -- Turns come from the time before the step, too.
    local left = keyed.own and keyed.own.walking and keyed.own.walk(states)
    if not left then call('HDEL', G, 'moving') end
    notify(NEVER)
    return left
  end
  local known, raws = raw_states(all), {}
  local n = raw_messages(all, function(m) return not known[m[1]] end, raws)
  local times, records = {}, {}
  for i = 1, n do
    local id = all[i][1]
    local st = known[id] and decode_state(id, known[id]) or fresh(id, raws[id])
    st.due = all[i][2]
    if st.since > now then
      carry(st, from, to)
      times[#times + 1], times[#times + 2] = int(st.due), id
      records[#records + 1], records[#records + 2] = id, encode_state(st)
      if keyed.own then keyed.own.move(id, st) end
      earliest = math.min(earliest, st.due)
    end
  end
  if #times > 0 then
    call('ZADD', T, unpack(times))
    put_states(records)
  end
  if keyed.own then keyed.own.arrange() end
  call('HSET', G, 'moving', pack(MOVING, from, to, all[n][2]) .. all[n][1])
  notify(NEVER)
  return true
end

local function write_place(new_era, from, to, phase, at, id)
  call('HSET', G, 'stepped', pack('<dd', era, shift) .. pack(PLACE, new_era, from, to, phase, at) .. id)
end

-- begin begins a step, and returns whether there is anything to set back: the partition may not
-- have seen the time before.
local function begin()
  local seen, to = whole(g[2], 'clock'), tonumber(ARGV[4]) or steps.server_now
  local from = math.max(seen, tonumber(ARGV[3]) or seen)
  make_room()
  if seen <= to then
    call('HSET', G, 'stepped', pack('<dd', steps.caller, shift))
    return false
  end
  call('UNLINK', X) -- after the step other leases than before may have run out
  write_place(steps.caller, from, to, 1, -NEVER, '')
  return true
end

-- go_on makes the next piece of a step.
local function go_on()
  local new_era, from, to, phase, at = unpack_from(PLACE, g[12], 17)
  local p, id = phases[phase], string.sub(g[12], PLACE_END)
  make_room()
  if not p then
    call('HDEL', G, 'gone')
    call('HSET', G, 'stepped', pack('<dd', new_era, shift + from - to), 'clock', int(math.max(to, steps.server_now)), 'moving', pack(MOVING, from, to, -NEVER))
    if keyed.own then keyed.own.begin_walk() end
    earliest = -NEVER
    notify(NEVER)
    return
  end
  if at == -NEVER then at, id = p.low or to + p.keep, LAST end -- what ended at the time after the step stays
  local all = p.set and members(p.set, at, id) or {}
  local n = #all > 0 and p.work(all, from, to) or 0
  if n == 0 then
    write_place(new_era, from, to, phase + 1, -NEVER, '')
  else
    write_place(new_era, from, to, phase, all[n][2], all[n][1])
  end
end

if steps.under_way then
  go_on()
  return {1}
end
local moving = call('HGET', G, 'moving')
local left = moving and move_waiting(moving)
if g[2] and steps.caller > era then
  if moving then return {1} end
  if begin() then return {1} end
end
return {left and 2 or 0}
