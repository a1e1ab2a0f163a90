-- purge removes some messages, of one state or all but the dead.
--
-- KEYS  of a partition
-- ARGV  3 to 8 as select.lua says
-- Reply {now, micros, version, how many, time, ID}: the place after which to go on
local last = {at = after or 0, id = after_id}
local chosen = choose()
local was = keyed.own and next_due_time() or -NEVER
local ids, of = {}, {[T] = {}, [L] = {}, [D] = {}}
for i, e in ipairs(chosen) do
  local set = of[e.from]
  ids[i], set[#set + 1] = e.id, e.id
  if ARGV[3] ~= '0' or e.from == T then last = e end
end
if #chosen > 0 then
  if #of[T] > 0 then call('ZREM', T, unpack(of[T])) end
  if #of[L] > 0 then remove_leases(unpack(of[L])) end
  if #of[D] > 0 then call('ZREM', D, unpack(of[D])) end
  delete_records(ids)
  settle_clock()
end
notify(was)
local out = reply(#chosen, last.at * places, last.id)
keep(out, #chosen > 0)
return out
