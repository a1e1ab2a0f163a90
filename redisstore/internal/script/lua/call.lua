-- What scripts that change messages or settings share, behind start.lua. A caller whose answer was lost sends the
-- call again. The call is carried out once, whichever copy comes first. A copy that comes too late changes nothing,
-- so nothing need be remembered for longer.
--
-- KEYS  9 r  hash: what calls were answered, in windows: 'window' -> its number; caller -> number of the call
--       (double) and its answer (msgpack), in the window of its deadline. Two hashes take turns.
--       10   the other one of the two, if somebody beyond the caller may send the call again, under a key. Then behind
--       the flags in ARGV[1]: the field of its record, 16 bytes; what stands for the content of the call, 8 bytes
-- A caller has one call under way at a time, and the number of each is greater than that of the one before.
local again = flags % 2 == 1
local field, content
if #ARGV[1] > 41 then field, content = string.sub(ARGV[1], 42, 57), string.sub(ARGV[1], 58) end

-- No deadline is further ahead. So there are never more than two windows, and the one before them is past for
-- good: whoever writes a record writes the clock. The record of a key is kept for as long, from the time at which it
-- was written. So it is in the window after the present one.
local WINDOW = 60000
local window = floor(deadline / WINDOW)

-- kept is what the call was answered before, or nil. kept_in is where that stands, of a call with a key.
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
    -- Should the server's clock be set back, the deadline stays past.
    if now > deadline then
      make_room()
      write_clock()
    end
    return redis.error_reply('PUNCTUAL_LATE ' .. now_text)
  end
end

-- write_record writes a record, behind all other writes. With new its window begins.
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

-- keep writes the record of an answer for its caller. One that changed nothing needs
-- none, unless another copy may still be on its way.
local function keep(answer, changed)
  if not (changed or again) then return end
  if not changed then make_room() end
  write_record(KEYS[9], window, new_window, caller, pack('<d', number) .. cmsgpack.pack(answer))
end

-- conclude writes the record of a call that is over: for its key, whatever it has changed, or else for its caller.
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
