-- What scripts that change messages or settings share, after start.lua. A caller that got no answer
-- sends the call again, and the call is still carried out only once: the first copy leaves a record
-- of its answer, which the other copies get. A copy that arrives after the deadline of the call
-- changes no message and no setting, so that the record of a caller need not be kept for longer
-- than that.
--
-- KEYS  9, 10 r hashes: what calls were answered, in windows: 'window' -> its number; caller ->
--       number of the call (double) and its answer (msgpack), in the window of its deadline. The
--       two take turns: the windows with even numbers are in the first. If somebody beyond the
--       caller may send the call again, under a key, the flags in ARGV[1] are followed by the field
--       of its record, 16 bytes, and what stands for the content of the call, 8 bytes
--
-- A caller has one call under way at a time, and the number of each is greater than that of the one
-- before.
local again = flags % 2 == 1
local field, content
if #ARGV[1] > 49 then field, content = string.sub(ARGV[1], 50, 65), string.sub(ARGV[1], 66) end

-- WINDOW is the length of a window, in ms. No deadline is further ahead than that, so there are
-- never more than two windows. The one before them is past for good, because a script that writes a
-- record also writes the clock. The record of a key is kept for at least WINDOW after it was
-- written, so it is in the window after the present one. Windows count the time with the shift, so
-- that they go on across a step of the clock.
local WINDOW = 60000
local window = floor((deadline + shift) / WINDOW)
-- hashes are those of the records: own has the window of the deadline, unless that is to begin,
-- which new says; other is the other one, and other_window its window, or -1.
local hashes = {own = KEYS[9 + window % 2], other = KEYS[10 - window % 2]}

-- kept is the answer that the call got before, or nil. If that was found under the key of the call,
-- hashes.kept_in has it.
local kept
do
  -- A copy from before a step of the clock, whose deadline is by the time before, is not carried
  -- out any more. It is only answered.
  local outdated = steps.caller < steps.latest
  local raw
  local got = field and call('HMGET', hashes.own, 'window', caller, field) or call('HMGET', hashes.own, 'window', caller)
  if field then
    local other, present = call('HMGET', hashes.other, 'window', field), floor((now + shift) / WINDOW)
    hashes.other_window = tonumber(other[1] or -1)
    if got[3] and tonumber(got[1] or -1) >= present then
      raw, hashes.kept_in = got[3], hashes.own
    elseif other[2] and hashes.other_window >= present then
      raw, hashes.kept_in = other[2], hashes.other
    end
    if raw and string.sub(raw, 1, 8) ~= content then return redis.error_reply('PUNCTUAL_OTHER the key belongs to another call') end
  end
  hashes.new = not got[1] or tonumber(got[1]) ~= window
  local before = not hashes.new and got[2]
  if outdated then
    deadline = -NEVER
    if not before or unpack_from('<d', before) ~= number then before = call('HGET', hashes.other, caller) or got[2] end
  end
  local latest = before and unpack_from('<d', before) or 0
  if raw then
    kept = cmsgpack.unpack(string.sub(raw, 9))
    if #kept >= 3 then kept[1], kept[2], kept[3] = now, micros, tonumber(g[1] or 0) * (g[4] and 1 or -1) end
  elseif latest == number then
    kept = cmsgpack.unpack(string.sub(before, 9))
    if #kept >= 2 then kept[1], kept[2] = now, micros end
  elseif outdated then
    return redis.error_reply('PUNCTUAL_LATE ' .. int(steps.server_now) .. ' ' .. int(steps.latest))
  elseif latest > number or now > deadline or deadline > now + WINDOW then
    -- The time is stored so that the deadline stays past, even if the server's clock is set back.
    if now > deadline then
      make_room()
      write_clock()
    end
    return redis.error_reply('PUNCTUAL_LATE ' .. now_text .. ' ' .. int(era))
  end
end

-- write_record writes a record into a hash of records, after the changes of the call. With new the
-- hash begins a window, so what the hash had from an earlier window goes.
local function write_record(hash, of, new, name, record)
  write_clock()
  if new then
    call('UNLINK', hash)
    redis.pcall('HSET', hash, 'window', of, name, record)
    redis.pcall('PEXPIRE', hash, 2 * WINDOW)
  else
    redis.pcall('HSET', hash, name, record)
  end
end

-- keep writes the record of an answer for its caller. A call that changed nothing needs no record,
-- unless it was sent before: then another copy of it may be on its way, which might find something
-- to change.
local function keep(answer, changed)
  if not (changed or again) then return end
  if not changed then make_room() end
  write_record(hashes.own, window, hashes.new, caller, pack('<d', number) .. cmsgpack.pack(answer))
end

-- conclude writes the record of a call that is carried out. With a key the record is for the key,
-- even if the call has changed nothing; otherwise conclude is keep.
local conclude = keep
if field then
  conclude = function(answer, changed)
    if not changed then make_room() end
    local of, record = floor((now + shift) / WINDOW) + 1, content .. cmsgpack.pack(answer)
    if of == window then
      write_record(hashes.own, of, hashes.new, field, record)
    else
      write_record(hashes.other, of, hashes.other_window ~= of, field, record)
    end
  end
end
