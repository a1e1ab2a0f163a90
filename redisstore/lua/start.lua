-- What all scripts of a partition begin with: names, settings and the time.
--
-- KEYS  1 t  sorted set: waiting messages by due time
--       2 l  sorted set: leased messages by the end of their lease
--       3 d  sorted set: dead messages by time of death
--       4 f  sorted set: IDs of finished messages, by the time at which they are forgotten
--       5 m  hash: ID -> what never changes of a message
--       6 s  hash: ID -> what changes; absent for a message that was never claimed
--       7 g  hash: the partition's clock, token counter and settings
-- ARGV  1 the latest time that the caller was told, in ms
--       2 seconds, 3 microseconds: the time for tests; empty for that of the server
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

local call = redis.call
local T, L, D, F, M, S, G = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]

local MAX_DUE = 253402300799999 -- 9999-12-31T23:59:59.999Z
local NEVER = 9007199254740991  -- 2^53-1: later than any time
local DROP, CANCEL, EXPIRES, MOVED = 1, 2, 4, 8 -- flags
local REASON_DISCARDED, REASON_ATTEMPTS, REASON_EXPIRED = 1, 2, 3
local MAX_FAILURES = 16
local LEASE_RAN_OUT = 'lease ran out'
-- Tokens of a partition are its number plus multiples of this: a token tells where it is from.
local TOKEN_STEP = 256
local LAST_TOKEN_TIME = 4398046511104 -- 2^53 / 8 / TOKEN_STEP

-- Integers are always printed by this: tostring() would round them and use exponents. It is
-- the dearest thing that a script can do per message, so do it once for all.
local function int(n) return string.format('%.0f', n) end

local function corrupt(text) error('PUNCTUAL_CORRUPT ' .. text) end

local g = call('HMGET', G, 'version', 'clock', 'token', 'gone', 'lease', 'attempts', 'pausedin', 'pausedout', 'remember', 'retention', 'moved')

-- The partition's settings; version is nil when there is no such topic. latest is the newest
-- version that was ever here; it stays when the topic is deleted.
local cfg = {
  version = g[5] and tonumber(g[1]) or nil,
  latest = tonumber(g[1] or 0),
  token = tonumber(g[3] or 0),
  lease = tonumber(g[5] or 0),
  attempts = tonumber(g[6] or 0),
  paused_in = g[7] == '1',
  paused_out = g[8] == '1',
  remember = tonumber(g[9] or 0),
  retention = tonumber(g[10] or 0),
}

-- A message that waits without a state is due at the time in its record, unless moved is set:
-- then it may have been rescheduled.
local moved = g[11] and true or false

-- The clock, read once. It never runs backwards: not behind what this partition or the
-- caller has seen. now is rounded down, up is rounded up, micros is what now leaves off.
local now, up, micros
do
  local s, us = ARGV[2], ARGV[3]
  if s == '' then
    local t = call('TIME')
    s, us = t[1], t[2]
  end
  s, us = tonumber(s), tonumber(us)
  now = s * 1000 + math.floor(us / 1000)
  up = s * 1000 + math.ceil(us / 1000)
  micros = us % 1000
  local passed = math.max(tonumber(ARGV[1]), tonumber(g[2] or 0))
  if passed > now then
    now, up, micros = passed, passed, 0
  end
end
local now_text = int(now)

-- reply is what every answer begins with.
local function reply(...) return {now, micros, cfg.version or -cfg.latest, ...} end
