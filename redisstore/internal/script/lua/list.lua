-- list returns some messages of one state, in order of the time in their place (see select.lua),
-- then ID, or the reverse.
--
-- KEYS  of a partition
-- ARGV  3 to 8 as select.lua says; 9 bytes after which to stop; 10 the reason of the dead
--       to list, 0 for all
-- Reply {now, micros, version, last time, last ID, ID, time, set, message, state, ID ...}: as many
--       as asked for, or fewer because of the bytes, the reason or because there are no more. last
--       is the place of the last message read, 0 and '' if there was none. set is 't', 'l' or 'd',
--       with a 'w' behind it if the message waits for its key. time is the score in that set, but
--       the score in x, the due time, for a ready message whose lease has run out. Both times are
--       PLACES times as large where leased messages are listed.
--       state is empty for a message that waits as it was pushed and has none
local budget, bytes, reason = tonumber(ARGV[9]), 0, tonumber(ARGV[10])
local found, last = {}, {at = 0, id = ''}
for _, e in ipairs(choose()) do
  if bytes >= budget then break end
  local message = call('HGET', M, e.id)
  if not message then corrupt('message ' .. e.id .. ' is not in ' .. M) end
  local state = state_of(e.id, message, e.from)
  if reason == 0 or decode_state(e.id, state).reason == reason then
    for _, v in ipairs({e.id, e.at * places, string.sub(e.from, -1) .. (keyed.own and ARGV[3] == '2' and keyed.own.waits(e.id) and 'w' or ''), message, state}) do found[#found + 1] = v end
  end
  bytes = bytes + #message + #state
  last = e
end
local out = reply(last.at * places, last.id)
for _, v in ipairs(found) do out[#out + 1] = v end
return out
