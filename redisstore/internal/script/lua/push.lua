-- push stores messages.
--
-- KEYS  of a partition
-- ARGV  3 msgpack: an array with three values per message, in order of effect: ID; due in digits,
--       or a number, the delay; how, a sum: what to do when the ID is in use (0 keep the first,
--       1 replace it, 2 fail, 3 it cannot be in use, because the caller has just made it up,
--       4 replace a dead one, keep any other), 8 times the flags of the record, and 256 to replace
--       only a message that is due at a given time, and 512 if the message has a key
--       4 the version of the settings that the caller knows
--       5 and so on, per message: what follows the due time in its record, and with 256 that given
--       time in front of it (double), and with 512 the key (1 byte for its length) behind that
-- Reply {now, micros, version, notified, up, place, status, due, state, place, status ...}: nothing
--       after version, and nothing done, if version is not the one that the caller knows
--       up is now rounded up, from which delays count
--       place is that of a message among those given, from 0; a message that is not named was
--       stored, and its ID was not in use
--       status 1 the topic has no keys
--              2 duplicate: due and state are those of the stored message
--              3 replaced: due is that of the new message
--              4 ID in use, 5 due too far ahead, 6 paused, 7 duplicate of a finished message
--              8 ID in use by a dead message: due is when it died
--              9 the message with the ID is due at another time than the given one: due is that
--              other time; or nothing has the ID: state is 0
--       state as in punctual.State, but 1 with status 9 for any message; due and state are 0 where
--       nothing is said of them
if cfg.version ~= tonumber(ARGV[4]) then
  local out = reply()
  keep(out, false)
  return out
end
local out = reply(NEVER, up)
local own = new_intake({
  t = T, l = L, d = D, f = F, m = M, s = S, x = X, waiting = waiting_count, leased = leased_count, dead = dead_count,
  finished = finished_count, lapsed = lapsed_count, has_states = state_count > 0, gone = gone, paused = cfg.push_paused,
  source = events and events.own, keyed = keyed.own,
})
local ids = {} -- those that may be in use
for i = 1, #items, 3 do
  if items[i + 2] ~= NEW then ids[#ids + 1] = items[i] end
end
own.read(ids)

local last_delay, last_due, last_text
for i = 1, #items, 3 do
  local id, due, how, text = items[i], items[i + 1], items[i + 2], nil
  local named = type(due) == 'string'
  if named then
    due, text = tonumber(due), due
  else
    if due ~= last_delay then
      last_delay, last_due = due, up + due
      last_text = int(last_due)
    end
    due, text = last_due, last_text
  end
  local rest = ARGV[5 + (i - 1) / 3]
  local status, at_due, state = own.refusal(id, due, how, rest)
  if not status then
    status, at_due, state = own.store(id, due, text, named, how, rest), due, 0
  end
  if status then
    local n = #out
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = (i - 1) / 3, status, at_due, state
  end
end
if events and events.noted() > 0 and not events.is_there then return events.absent() end
earliest = own.earliest
local was = (keyed.own or earliest <= now + NEAR) and next_due_time() or NEVER
own.write()
if own.stored() > 0 then settle_clock() end
out[4] = notify(was)
conclude(out, own.stored() > 0)
return out
