-- stats counts the messages of a partition.
--
-- KEYS  of a partition
-- ARGV  none of its own
-- Reply {now, micros, version, scheduled, ready, leased, dead, next due, waiting for keys};
--       nothing after version if there is no such topic. next due is NEVER when there is none.
if not cfg.version then return reply() end
local due = call('ZCOUNT', T, '-inf', int(now))
local scheduled = call('ZCARD', T) - due
local run_out, all = lapsed()
if not all then return redis.error_reply('PUNCTUAL_MORE leases have run out') end
local first, lapsed_first = call('ZRANGE', keyed.own and keyed.names[1] or T, 0, 0, 'WITHSCORES'), call('ZRANGE', X, 0, 0, 'WITHSCORES')
local next_due = math.min(tonumber(first[2] or NEVER), tonumber(lapsed_first[2] or NEVER))
local dead = call('ZCOUNT', D, '(' .. int(gone), '+inf')
return reply(scheduled, due + run_out, leased_count - run_out, dead, next_due, keyed.own and keyed.own.waiting(due, L) or 0)
