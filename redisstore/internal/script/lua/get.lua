-- get returns one message.
--
-- KEYS  of a partition
-- ARGV  3 ID
-- Reply {now, micros, version, time, set, message, state}; nothing after version if there is no
--       such message. set is 't', 'l' or 'd', with a 'w' behind it if
--       the message is ready and waits for its key; time is the score in it, rounded up to ms;
--       message and state as in the reply of list.lua
local id = ARGV[3]
local at, set = tonumber(call('ZSCORE', T, id) or nil), 't'
if not at then
  at, set = tonumber(call('ZSCORE', L, id) or nil), 'l'
end
if not at then
  at, set = is_dead(id), 'd'
end
if not at then return reply() end
local message = call('HGET', M, id)
if not message then corrupt('message ' .. id .. ' is not in ' .. M) end
if keyed.own and set ~= 'd' and ceil(at) <= now and keyed.own.waits(id) then set = set .. 'w' end
return reply(ceil(at), set, message, state_of(id, message, set == 'l' and L))
