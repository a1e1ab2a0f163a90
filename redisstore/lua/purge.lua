-- purge removes some messages of one state.
--
-- KEYS  of a partition
-- ARGV  4 to 9 as select.lua says
-- Reply {now, micros, version, how many, time, ID}: the place of the last one removed
local last = {at = 0, id = ''}
local chosen = choose()
for _, e in ipairs(chosen) do
  remove(e.id, e.from)
  last = e
end
if #chosen > 0 then settle_clock() end
return reply(#chosen, last.at, last.id)
