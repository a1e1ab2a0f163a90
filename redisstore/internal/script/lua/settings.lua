-- The settings of a partition, for all scripts that have prelude.lua. This file follows start.lua
-- and the fast paths.

local DROP, CANCEL, EXPIRES, MOVED, FIRST = 1, 2, 4, 8, 16 -- flags
local REMEMBER = 16 -- a flag of a message, not of a state: the message is of version 2, which has a remember
local REASON_DISCARDED, REASON_ATTEMPTS, REASON_EXPIRED = 1, 2, 3
local MAX_FAILURES = 16
local LEASE_RAN_OUT = 'lease ran out'

-- version is nil when there is no such topic. latest is the newest version that this partition ever
-- had; it stays for a day when the topic is deleted.
local more = call('HMGET', G, 'max_attempts', 'gone')
local function number_of(value, field) return value and whole(value, field) or 0 end
if g[9] and #g[9] % 8 ~= 0 then corrupt('field lengths of ' .. G .. ' cannot be read') end
local cfg = {
  version = g[4] and tonumber(g[1]) or nil,
  latest = tonumber(g[1] or 0),
  token = number_of(g[3], 'token'),
  lease = number_of(g[4], 'lease'),
  max_attempts = number_of(more[1], 'max_attempts'),
  push_paused = g[5] == '1' or g[5] == '3',
  delivery_paused = g[6] == '1',
  max_leases = 0, -- how many messages may be leased at once; 0: any number
  interval = 0,   -- of the rate: microseconds between two leases; 0: any number of leases may begin
  dedupe_window = number_of(g[7], 'dedupe_window'),
  dead_retention = number_of(g[8], 'dead_retention'),
  finished_retention = number_of(g[10], 'finished_retention'),
}

-- The field delivery_paused is 2 in a topic that bounds its leases and whose delivery is not
-- paused, so that the scripts of other topics read no more fields.
if g[6] == '2' then
  local bounds = call('HMGET', G, 'max_leases', 'rate_interval', 'rate_at_once', 'gate')
  cfg.max_leases = number_of(bounds[1], 'max_leases')
  -- Beside the interval of the rate, how many leases may begin at once, and lifecycle.Gate.
  cfg.interval, cfg.at_once = number_of(bounds[2], 'rate_interval'), number_of(bounds[3], 'rate_at_once')
  cfg.gate = number_of(bounds[4], 'gate')
end

-- reply returns an answer: time, microseconds and version, as every answer begins, and then the
-- given values.
local function reply(...) return {now, micros, cfg.version or -cfg.latest, ...} end
