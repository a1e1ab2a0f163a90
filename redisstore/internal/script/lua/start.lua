-- What the scripts of a partition begin with, all but confirm and forget: names, settings and the
-- time.
--
-- KEYS  1 t sorted set: waiting messages by due time
--       2 l sorted set: leased messages by the end of their lease
--       3 d sorted set: dead messages by time of death
--       4 f sorted set: IDs of finished messages, by the time at which they are forgotten
--       5 m hash: ID -> what never changes of a message
--       6 s hash: ID -> what changes; absent for a message that has a compact lease, or waits as it
--           was pushed and has no remember
--       7 g hash: the partition's clock, token counter and settings
--       8 x sorted set: messages whose lease has run out, by due time: the first ones of l, as many
--           as list, purge and stats have needed in that order so far
--       9, 10 r of scripts that change something: see call.lua
--       further keys: see configure.lua, delete.lua, follow.lua and events.lua
--       the last two, in a topic that keeps finished records or has kept some:
--         h  hash: ID -> finished record
--         u  sorted set: IDs of finished records, up to 32 in a member, by the time at which the
--            records are deleted
--       and the last five, or those before h and u, in a topic with keys: see keyed.lua
-- ARGV  1 packed, six doubles and a byte:
--         lower bound of the clock, in ms: the latest time that an answer to the caller had
--         era: how many steps of the store's clock the caller knows of
--         seconds and microseconds: the time for tests, or seconds below 0 to take the server's
--         number and deadline, in ms, of a call of a script with records
--         flags (B): 1 the call was sent before, or may have been, 2 no fast path, for tests,
--         4 the script is step
--       and of a call with a key two texts more, see call.lua
--       2 the caller, of scripts with records: name of the store, ':', number of the slot
--
-- Reply {now, micros, version, ...}: the time in ms; the microseconds that it leaves off, and 1000
--       times the era of the partition; and the version of the settings here: positive if there is
--       such a topic; else 0, or minus the last version that there was
--
-- Every live or dead message is in m and in exactly one of t, l and d. A message has a
-- token exactly while it is in l. All times are ms since 1970 unless they say otherwise.
-- The formats are drawn in docs/format-redis.md.
--
-- Redis does not undo the writes of a script that fails midway. So each script reads all that may
-- be missing, damaged or of a wrong type before its first write. Only push_fast.lua takes its first
-- write back if t is of a wrong type.
--
-- Nearly every call runs this file. What only some scripts need follows the fast paths, which
-- return before it.

local call, floor, ceil, pack, unpack_from = redis.call, math.floor, math.ceil, struct.pack, struct.unpack
local T, L, D, F, M, S, G, X = unpack(KEYS)
local H, U
if string.byte(KEYS[#KEYS], -1) == 117 then H, U = KEYS[#KEYS - 1], KEYS[#KEYS] end
-- keyed.own is nil unless the topic has keys: see keyed.lua. keyed.last is the place of the last
-- key that is none of its keys and no h and u.
local keyed = {last = H and #KEYS - 2 or #KEYS}
local steps = {} -- of the clock, see below: one local variable, because a script may have 200
local lower_bound, number, deadline, flags
lower_bound, steps.caller, steps.seconds, steps.us, number, deadline, flags = unpack_from('<ddddddB', ARGV[1])
local caller = ARGV[2]

local NEVER = 9007199254740991  -- 2^53-1: later than any time
local MAX_DUE = 253402300799999 -- 9999-12-31T23:59:59.999Z
-- A token is the number of its partition plus a multiple of TOKEN_STEP, so that a settlement finds
-- its partition.
local TOKEN_STEP = 256
local LAST_TOKEN_TIME = 4398046511104 -- 2^53 / 8 / TOKEN_STEP
local MESSAGE_BYTES = 21
local PLAIN = 16 -- first byte of a message: the version, 1, times 16, and the flags. Version 2 counts as the flag 16
local NAMED = 2 -- flag of a message whose due time somebody named
-- is_plain reports whether a message has no flag beyond NAMED and that of a block of attributes, 8,
-- which no script reads.
local function is_plain(first)
  local more = (first - PLAIN) % 8
  return first >= PLAIN and first < 2 * PLAIN and (more == 0 or more == NAMED)
end

-- int prints a whole number, because tostring() would round large ones and use exponents. Nothing
-- else that a script does per message costs as much, so print a number once and use the text for
-- all messages.
local function int(n) return string.format('%.0f', n) end

local function corrupt(text) error('PUNCTUAL_CORRUPT ' .. text) end

-- whole returns the whole number that a field of g holds, or of another hash, and fails for any
-- other value. Each script calls it for the fields that it needs before its first write.
local function whole(value, field, of)
  local n = tonumber(value)
  if not n or n % 1 ~= 0 then corrupt('field ' .. field .. ' of ' .. (of or G) .. ' is no whole number') end
  return n
end

-- A topic exists in this partition if g has the field lease.
local g = call('HMGET', G, 'version', 'clock', 'token', 'lease', 'push_paused', 'delivery_paused', 'dedupe_window', 'dead_retention', 'lengths', 'finished_retention', 'emit', 'stepped')

-- A caller names h and u only after it has learned that the topic may have finished records. This
-- error is how it learns: it sends the call again with these keys.
if g[10] and not H then return redis.error_reply('PUNCTUAL_FINISHED there may be finished records: give their keys, too') end

-- In the same way a caller names the keys of a topic with keys, in which push_paused is 2, or 3 if
-- pushes are paused.
if string.byte(KEYS[keyed.last], -1) == 105 and KEYS[keyed.last] == string.sub(T, 1, -2) .. 'i' then keyed.last = keyed.last - 5 end
if g[5] == '2' or g[5] == '3' then
  keyed.names = {unpack(KEYS, keyed.last + 1, keyed.last + 5)}
  if #keyed.names < 5 or string.byte(keyed.names[5], -1) ~= 105 then return redis.error_reply('PUNCTUAL_KEYED the topic has keys: give the keys of these, too') end
end

if g[1] then whole(g[1], 'version') end

local follow_topics -- nil unless the call has follow-ups: see follow_topics.lua
local events        -- nil unless the topic, or one of the topics of the follow-ups, tells of events: see events.lua

-- The store's clock steps back when it stays ahead of the servers' clocks. The era of a partition
-- is how many of these steps it has made. It makes a step when a caller comes that knows of it: the
-- script answers PUNCTUAL_STEP, the era and the partition, and has done nothing; the caller has
-- step.lua make the step, and sends the script again. A caller that does not know of the step yet
-- gives a lower bound from before it, which does not count. It is told the era in the answer.
--
-- steps.of returns what a partition says of its steps, from its fields stepped and clock: its era;
-- its shift, by how many ms all steps together have set its clock back; and whether a step is under
-- way. A partition that has no clock has nothing that could step.
function steps.of(stepped, clock, of)
  if not stepped then return clock and 0 or steps.caller, 0, false end
  if #stepped < 16 then corrupt('field stepped of ' .. of .. ' cannot be read') end
  local era, shift = unpack_from('<dd', stepped)
  return era, shift, #stepped > 16
end

local era, shift
era, shift, steps.under_way = steps.of(g[12], g[2], G)
if flags < 4 and (steps.under_way or era < steps.caller) then return redis.error_reply('PUNCTUAL_STEP ' .. int(era) .. ' ' .. G) end
steps.latest = era -- of all partitions that take part: see follow_topics.lua and events.lua

-- The server's clock is read once. The time of the script never falls behind the time in g or the
-- caller's lower bound, so that time does not run backwards when a server with a slower clock takes
-- over. now is rounded down to ms, and up is rounded up. micros is what now leaves off, and 1000
-- times the era, as answers have it. follow_topics.lua and events.lua may set all three forward.
if steps.seconds < 0 then
  local t = call('TIME')
  steps.seconds, steps.us = t[1], t[2]
end
local micros = steps.us % 1000
local now = steps.seconds * 1000 + (steps.us - micros) / 1000
local up = micros > 0 and now + 1 or now
steps.server_now, micros = now, micros + 1000 * era
local function set_forward(passed)
  if passed > now then now, up, micros = passed, passed, 1000 * era end
end
set_forward(g[2] and whole(g[2], 'clock') or 0)
if era == steps.caller then set_forward(lower_bound) end
local now_text = int(now)

-- write_clock stores the time in g unless it is there already. A partition that never had a topic
-- gets no field.
local function write_clock()
  if g[2] == now_text or not g[1] then return end
  call('HSET', G, 'clock', now_text)
  g[2] = now_text
end

-- make_room lets a script go on although the server is out of memory: the server refuses a command
-- that adds something unless the script has called one that removes before, even if nothing was
-- removed. So make_room must come before the first write of a script that has to succeed on a full
-- server, such as a claim, a settlement or a cancel. Scripts that store messages or make topics do
-- not call make_room before they do so, so that a full server refuses them.
local function make_room() call('HDEL', G, '-') end

-- lease_token returns the token of a compact lease and the time at which the lease began. Both are
-- in its score, which is the end of the lease less (32 × n + turn) / 1024. n is the number of the
-- length of the lease in g's field lengths, from 0; the variable place is the byte at which that
-- length begins there. turn tells the claims of one ms apart. Tokens count the time with the shift,
-- so that they grow across a step of the clock.
local function lease_token(score)
  local till = ceil(score)
  local k = (till - score) * 1024
  local turn = k % 32
  local place = (k - turn) / 4 + 1
  if not g[9] or #g[9] < place + 7 then corrupt('field lengths of ' .. G .. ' lacks that of a lease') end
  local length = unpack_from('<d', g[9], place)
  return (8 * (till - length + shift) + turn) * TOKEN_STEP + whole(g[3], 'token') % TOKEN_STEP, till - length
end

-- NEAR bounds notifications, in ms: a message that becomes due later than that is not announced,
-- because waiting claims poll each second and find it in time.
local NEAR = 2000

-- publish notifies waiting claims of a due time that is earlier than the one they know. A user
-- without the right to publish gets no error; then claims find the message by their poll, up to a
-- second late. t names the set of another partition than this one.
local function publish(at, t)
  redis.pcall('PUBLISH', string.sub(t or T, 1, -2) .. 'notify', string.match(caller, '^[^:]*') .. ' ' .. int(at))
end
