-- delete removes a topic with all that belongs to it in one step. What stays is the token
-- counter and the clock, so that tokens grow when the topic comes into being again.
--
-- KEYS  of a partition
-- ARGV  none of its own
-- Reply {now, micros, exists, how many messages}: exists is 1 if there was such a topic
if not cfg.version then return reply(0) end
local n = call('ZCARD', T) + call('ZCARD', L) + call('ZCOUNT', D, '(' .. int(gone), '+inf')
call('UNLINK', T, L, D, F, M, S, G)
call('HSET', G, 'token', int(cfg.token), 'clock', int(now))
return reply(n)
