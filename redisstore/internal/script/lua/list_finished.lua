-- list_finished returns some finished records that are kept until a time between two times, in
-- order of the time until which they are kept, or the reverse. Records of one time are in no order.
--
-- KEYS  of a partition
-- ARGV  3 from, 4 to (ms, both included)
--       5 how many members of u to leave out, because they were read before
--       6 how many IDs to read, about; a negative number reads from the end
--       7 time, 8 ID of the place behind which the list begins; the ID is empty to begin at the
--       first
--       9 from, 10 to: when the messages finished (ms, to not included)
--       11 their outcome, or -1 for any
--       12 bytes after which to stop
-- Reply {now, micros, version, IDs read, members read, members left, last time, members of the last
--       time, ID, record, ID ...}: members left is 1 when there are more to read, and else 0. last
--       time is that of the last member read, and members of the last time says how many of those
--       read have it; both are 0 when none was read
if not H then return reply(0, 0, 0, 0, 0) end
local low, high, skip, most = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local after, after_id = tonumber(ARGV[7]), ARGV[8]
local from, to, outcome, budget = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local backwards = most < 0
most = math.abs(most)
local SOME_MEMBERS = 16

-- is_behind reports whether a record comes behind the place at which the list begins.
local function is_behind(till, id)
  if after_id == '' or till ~= after then return true end
  if backwards then return before(id, after_id) end
  return before(after_id, id)
end

local function is_selected(raw)
  local kind, at = unpack_from(FINISHED, raw)
  return at >= from and at < to and (outcome < 0 or kind % 4 == outcome)
end

local found, ids_read, members_read, bytes, last_till, of_last = {}, 0, 0, 0, 0, 0

-- read_member adds the records that a member leads to. A record that is kept until another time
-- belongs to a message that finished later under the ID, and has its own member.
local function read_member(member, till)
  local ids, wanted = {}, {}
  if not ids_of(member, ids) then corrupt('a member of ' .. U .. ' cannot be read') end
  ids_read = ids_read + #ids
  for _, id in ipairs(ids) do
    if is_behind(till, id) then wanted[#wanted + 1] = id end
  end
  if #wanted == 0 then return end
  for i, raw in ipairs(call('HMGET', H, unpack(wanted))) do
    if raw then
      local kept = finished_until(raw)
      if not kept then corrupt('the finished record of message ' .. wanted[i] .. ' cannot be read') end
      if kept == till and is_selected(raw) then
        found[#found + 1], found[#found + 2] = wanted[i], raw
        bytes = bytes + #raw
      end
    end
  end
end

-- Records past their retention are not read, though a sweep may still have to delete them.
if tonumber(low) <= now then
  low = int(now + 1)
  if not backwards then skip = 0 end -- the members to leave out are of the time low, which is past
end

-- The members from rank low_rank to high_rank are still to be read. Ranks serve both directions.
local low_rank, high_rank = call('ZCOUNT', U, '-inf', '(' .. low), call('ZCOUNT', U, '-inf', high) - 1
if backwards then high_rank = high_rank - skip else low_rank = low_rank + skip end

-- members returns up to SOME_MEMBERS members, the next ones in the order of the list, as {member,
-- time}.
local function members()
  local first, last, out = low_rank, math.min(high_rank, low_rank + SOME_MEMBERS - 1), {}
  if backwards then first, last = math.max(low_rank, high_rank - SOME_MEMBERS + 1), high_rank end
  if first > last then return out end
  local got = call('ZRANGE', U, int(first), int(last), 'WITHSCORES')
  for i = 1, #got, 2 do
    out[backwards and (#got - i + 1) / 2 or (i + 1) / 2] = {got[i], tonumber(got[i + 1])}
  end
  return out
end

while low_rank <= high_rank and ids_read < most and bytes < budget do
  for _, e in ipairs(members()) do
    if ids_read >= most or bytes >= budget then break end
    read_member(e[1], e[2])
    if e[2] ~= last_till then last_till, of_last = e[2], 0 end
    members_read, of_last = members_read + 1, of_last + 1
    if backwards then high_rank = high_rank - 1 else low_rank = low_rank + 1 end
  end
end
local out = reply(ids_read, members_read, low_rank <= high_rank and 1 or 0, last_till, of_last)
for _, v in ipairs(found) do out[#out + 1] = v end
return out
