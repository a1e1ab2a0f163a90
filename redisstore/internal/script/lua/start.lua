-- What all scripts of a partition begin with: names, settings and the time.
--
-- KEYS  1 t  sorted set: waiting messages by due time
--       2 l  sorted set: leased messages by the end of their lease
--       3 d  sorted set: dead messages by time of death
--       4 f  sorted set: IDs of finished messages, by the time at which they are forgotten
--       5 m  hash: ID -> what never changes of a message
--       6 s  hash: ID -> what changes; absent for a message that waits as it was pushed, or is under a usual lease
--       7 g  hash: the partition's clock, token counter and settings
--       8 x  sorted set: leased messages whose lease has run out, by due time: the first ones of l,
--            as many as somebody has had to see in that order
--       9 r  of scripts that change something: see call.lua
--       the last two, where the topic keeps or kept stories of finished messages:
--         h  hash: ID -> story
--         u  sorted set: IDs of stories, some in each member, by the time at which they are forgotten
-- ARGV  1 packed: the latest time that the caller was told, in ms; seconds and microseconds: the time for
--       tests, seconds below 0 for that of the server; number of the call and its deadline in ms, of scripts with
--       records (five doubles); flags (B): 1 the call was sent before, 2 no usual case, for tests
--       2 the caller, of scripts with records: name of the store, ':', number of the slot
--
-- Reply {now, micros, version, ...}: the time in ms and the microseconds that it leaves off,
--       and the version of the settings here: positive if there is such a topic; else 0, or
--       minus the last version that there was
--
-- Every live or dead message is in m and in exactly one of t, l and d. A message has a
-- token exactly while it is in l. All times are ms since 1970 unless they say otherwise.
-- The formats are drawn in docs/format-redis.md.
--
-- A script that fails midway keeps what it wrote. So each first reads all that may be
-- missing, damaged or of a wrong type, and only then writes.
--
-- Whatever stands here is paid for by each script: what only some need is behind the usual cases.

local call, floor, ceil, pack, unpack_from = redis.call, math.floor, math.ceil, struct.pack, struct.unpack
local T, L, D, F, M, S, G, X = unpack(KEYS)
local H, U
if string.byte(KEYS[#KEYS], -1) == 117 then H, U = KEYS[#KEYS - 1], KEYS[#KEYS] end
local told, seconds, us, number, deadline, flags = unpack_from('<dddddB', ARGV[1])
local caller = ARGV[2]

local NEVER = 9007199254740991  -- 2^53-1: later than any time
local MAX_DUE = 253402300799999 -- 9999-12-31T23:59:59.999Z
-- Tokens of a partition are its number plus multiples of this: a token tells where it is from.
local TOKEN_STEP = 256
local LAST_TOKEN_TIME = 4398046511104 -- 2^53 / 8 / TOKEN_STEP
local MESSAGE_BYTES = 21
local PLAIN = 16 -- first byte of a message: the version, 1, times 16, and the flags. Version 2 counts as the flag 16
local ATTRIBUTES = 8 -- flag of a message with a block of attributes, which no script reads
local function is_plain(first) return first == PLAIN or first == PLAIN + ATTRIBUTES end

-- Integers are always printed by this: tostring() would round them and use exponents. It is
-- the dearest thing that a script can do per message, so do it once for all.
local function int(n) return string.format('%.0f', n) end

local function corrupt(text) error('PUNCTUAL_CORRUPT ' .. text) end

-- whole is the number in a field of g. Each script reads those that it needs by this before its first write.
local function whole(value, field)
  local n = tonumber(value)
  if not n or n % 1 ~= 0 then corrupt('field ' .. field .. ' of ' .. G .. ' is no whole number') end
  return n
end

-- There is a topic here if it has a lease.
local g = call('HMGET', G, 'version', 'clock', 'token', 'lease', 'push_paused', 'delivery_paused', 'dedupe_window', 'dead_retention', 'lengths', 'finished_retention')

-- Only callers who know that there may be stories give their keys. This teaches them.
if g[10] and not H then return redis.error_reply('PUNCTUAL_STORIES there may be stories: give their keys, too') end

if g[1] then whole(g[1], 'version') end

-- The clock, read once. It never runs backwards: not behind what this partition or the
-- caller has seen. now is rounded down, up is rounded up, micros is what now leaves off.
if seconds < 0 then
  local t = call('TIME')
  seconds, us = t[1], t[2]
end
local micros = us % 1000
local now = seconds * 1000 + (us - micros) / 1000
local up = micros > 0 and now + 1 or now
do
  local passed = g[2] and whole(g[2], 'clock') or 0
  if told > passed then passed = told end
  if passed > now then now, up, micros = passed, passed, 0 end
end
local now_text = int(now)

-- write_clock writes the clock down, where there is or was a topic.
local function write_clock()
  if g[2] == now_text or not g[1] then return end
  call('HSET', G, 'clock', now_text)
  g[2] = now_text
end

-- make_room comes before a first write that adds something. A server out of memory refuses such a write. It lets a
-- script go on that has called a command which removes, even one without effect.
local function make_room() call('HDEL', G, '-') end

-- lease_token is the token of a lease without a state, and when that began, from its score. The score is the end of the
-- lease less (32 × length + turn) / 1024. length is the place in g's lengths of how long the lease was given for. turn
-- is which of the leases of that ms it is.
local function lease_token(score)
  local till = ceil(score)
  local k = (till - score) * 1024
  local turn = k % 32
  local place = (k - turn) / 4 + 1
  if not g[9] or #g[9] < place + 7 then corrupt('field lengths of ' .. G .. ' lacks that of a lease') end
  local length = unpack_from('<d', g[9], place)
  return (8 * (till - length) + turn) * TOKEN_STEP + whole(g[3], 'token') % TOKEN_STEP, till - length
end

-- NEAR is how far ahead what becomes due is told at once, in ms. Consumers look each second, so they find
-- in time what is further ahead.
local NEAR = 2000

-- publish tells waiting consumers of an earlier time to look than they know. Who may not publish has consumers
-- that are up to a second late.
local function publish(at)
  redis.pcall('PUBLISH', string.sub(T, 1, -2) .. 'notify', string.match(caller, '^[^:]*') .. ' ' .. int(at))
end
