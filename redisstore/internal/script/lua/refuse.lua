-- refuse has copies of calls refused that ended without an answer and may still be on their way.
-- Its caller sends it before the next call to the partition, so that a copy which the network held
-- back cannot undo that call. What a copy did that was carried out before stays. The script may be
-- sent any number of times.
--
-- KEYS  of a partition; 9 and 10 are the two hashes of records, see call.lua
-- ARGV  3 and so on, four for each call: its caller, its number, its deadline in ms, and its era.
--       The number after that one must never be used. Copies of another era than that of the
--       partition are refused in any case
-- Reply {now, micros, version, place ...}: the calls, from 0, that are not refused yet, because no
--       copy can be carried out so long before its deadline
local WINDOW = 60000 -- as in call.lua

local out = {now, micros, tonumber(g[1] or 0) * (g[4] and 1 or -1)}
make_room()
for i = 3, #ARGV, 4 do
  local of, refused, till = ARGV[i], ARGV[i + 1] + 1, tonumber(ARGV[i + 2])
  local window = floor((till + shift) / WINDOW)
  if tonumber(ARGV[i + 3]) < era then
    till = -NEVER
  end
  if till > now + WINDOW then
    out[#out + 1] = (i - 3) / 4
  elseif now <= till then -- else the deadline refuses the copy
    local hash = KEYS[9 + window % 2]
    local got = call('HMGET', hash, 'window', of)
    if tonumber(got[1] or -1) ~= window then
      call('UNLINK', hash)
      call('HSET', hash, 'window', window, of, pack('<d', refused))
      call('PEXPIRE', hash, 2 * WINDOW)
    elseif not got[2] or unpack_from('<d', got[2]) < refused then
      call('HSET', hash, of, pack('<d', refused))
    end
  end
end
-- The time is stored so that a deadline that is past stays so, even if the server's clock is set
-- back.
write_clock()
return out
