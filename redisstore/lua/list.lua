-- list returns some messages of one state, in order of time, then ID.
--
-- KEYS  of a partition
-- ARGV  4 to 9 as select.lua says; 10 bytes after which to stop
-- Reply {now, micros, version, ID, time, set, message, state, ID ...}: as many as asked for, or fewer
--       because of the bytes or because there are no more. set is 't', 'l' or 'd', and time
--       the score in it; state is empty for a message that was never claimed
local out = reply()
local budget, bytes = tonumber(ARGV[10]), 0
for _, e in ipairs(choose()) do
  if bytes >= budget then break end
  local message = call('HGET', M, e.id)
  if not message then corrupt('message ' .. e.id .. ' is not in ' .. M) end
  out[#out + 1] = e.id
  out[#out + 1] = e.at
  out[#out + 1] = string.sub(e.from, -1)
  out[#out + 1] = message
  out[#out + 1] = call('HGET', S, e.id) or ''
  bytes = bytes + #message
end
return out
