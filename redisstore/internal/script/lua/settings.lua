-- What all scripts of a partition share behind the usual cases: its settings. It stands behind start.lua.

local DROP, CANCEL, EXPIRES, MOVED, FIRST = 1, 2, 4, 8, 16 -- flags
local REASON_DISCARDED, REASON_ATTEMPTS, REASON_EXPIRED = 1, 2, 3
local MAX_FAILURES = 16
local LEASE_RAN_OUT = 'lease ran out'

-- version is nil when there is no such topic. latest is the newest version that was ever here; it stays when
-- the topic is deleted.
local more = call('HMGET', G, 'max_attempts', 'gone')
local cfg = {
  version = g[4] and tonumber(g[1]) or nil,
  latest = tonumber(g[1] or 0),
  token = tonumber(g[3] or 0),
  lease = tonumber(g[4] or 0),
  max_attempts = tonumber(more[1] or 0),
  push_paused = g[5] == '1',
  delivery_paused = g[6] == '1',
  dedupe_window = tonumber(g[7] or 0),
  dead_retention = tonumber(g[8] or 0),
  finished_retention = tonumber(g[10] or 0),
}

-- reply is what every answer begins with.
local function reply(...) return {now, micros, cfg.version or -cfg.latest, ...} end
