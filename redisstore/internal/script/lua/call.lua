-- What scripts that change messages or settings share, after start.lua. A caller that got no answer sends the call
-- again, and the call is still carried out only once: the first copy leaves a record of its answer, which the other
-- copies get. A copy that arrives after the deadline of the call changes no message and no setting, so that the record of a caller
-- need not be kept for longer than that.
--
-- KEYS  9 r  hash: what calls were answered, in windows: 'window' -> its number; caller -> number of the call
--       (double) and its answer (msgpack), in the window of its deadline. Two hashes take turns.
--       10   the other one of the two, if somebody beyond the caller may send the call again, under a key. Then the flags
--       in ARGV[1] are followed by the field of its record, 16 bytes, and what stands for the content of the call, 8 bytes
-- A caller has one call under way at a time, and the number of each is greater than that of the one before.
local again = flags % 2 == 1
local field, content
if #ARGV[1] > 41 then field, content = string.sub(ARGV[1], 42, 57), string.sub(ARGV[1], 58) end

-- WINDOW is the length of a window, in ms. No deadline is further ahead than that, so there are never more than two windows. The
-- one before them is past for good, because a script that writes a record also writes the clock. The record of a key is kept for
-- at least WINDOW after it was written, so it is in the window after the present one.
local WINDOW = 60000
local window = floor(deadline / WINDOW)

-- kept is the answer that the call got before, or nil. If that was found under the key of the call, kept_in is the hash that has
-- it. new_window says that KEYS[9] does not have the window of the deadline yet. other_window is the window of KEYS[10], or -1.
local kept, kept_in, new_window, other_window
do
  local got, raw
  if field then
    got = call('HMGET', KEYS[9], 'window', caller, field)
    local other, present = call('HMGET', KEYS[10], 'window', field), floor(now / WINDOW)
    other_window = tonumber(other[1] or -1)
    if got[3] and tonumber(got[1] or -1) >= present then
      raw, kept_in = got[3], KEYS[9]
    elseif other[2] and other_window >= present then
      raw, kept_in = other[2], KEYS[10]
    end
    if raw and string.sub(raw, 1, 8) ~= content then return redis.error_reply('PUNCTUAL_OTHER the key belongs to another call') end
  else
    got = call('HMGET', KEYS[9], 'window', caller)
  end
  new_window = not got[1] or tonumber(got[1]) ~= window
  local before = not new_window and got[2]
  local latest = before and unpack_from('<d', before) or 0
  if raw then
    kept = cmsgpack.unpack(string.sub(raw, 9))
    if #kept >= 3 then kept[1], kept[2], kept[3] = now, micros, tonumber(g[1] or 0) * (g[4] and 1 or -1) end
  elseif latest == number then
    kept = cmsgpack.unpack(string.sub(before, 9))
    if #kept >= 2 then kept[1], kept[2] = now, micros end
  elseif latest > number or now > deadline or deadline > now + WINDOW then
    -- The time is stored so that the deadline stays past, even if the server's clock is set back.
    if now > deadline then
      make_room()
      write_clock()
    end
    return redis.error_reply('PUNCTUAL_LATE ' .. now_text)
  end
end

-- write_record writes a record into a hash of records, after the changes of the call. With new the hash begins a window, so what
-- the hash had from an earlier window goes.
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

-- keep writes the record of an answer for its caller. A call that changed nothing needs no record, unless it was sent before:
-- then another copy of it may be on its way, which might find something to change.
local function keep(answer, changed)
  if not (changed or again) then return end
  if not changed then make_room() end
  write_record(KEYS[9], window, new_window, caller, pack('<d', number) .. cmsgpack.pack(answer))
end

-- conclude writes the record of a call that is carried out. With a key the record is for the key, even if the call has
-- changed nothing; otherwise conclude is keep.
local conclude = keep
if field then
  conclude = function(answer, changed)
    if not changed then make_room() end
    local of, record = floor(now / WINDOW) + 1, content .. cmsgpack.pack(answer)
    if of == window then
      write_record(KEYS[9], of, new_window, field, record)
    else
      write_record(KEYS[10], of, other_window ~= of, field, record)
    end
  end
end
