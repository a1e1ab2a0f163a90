-- What scripts that change messages share, behind the prelude: a caller whose answer was
-- lost sends the call again, and it is carried out once, whichever copy comes first.
--
-- KEYS  8 r  string: number (double) of the latest call of this caller's slot, and what it
--       was answered (msgpack). The caller has one call under way in a slot at a time.
-- ARGV  the last but one: number of the call, greater than that of the one before in the
--       slot; the last: 1 if it was sent before. Both are taken off here.
local again = table.remove(ARGV) == '1'
local number = tonumber(table.remove(ARGV))

-- Long after any caller has given up.
local RECEIPT_MS = 600000

-- kept is what the call was answered before, or nil.
local kept
do
  local raw = call('GET', KEYS[8])
  local latest = raw and struct.unpack('<d', raw) or 0
  if latest > number then error('PUNCTUAL_LATE a copy of a call that has been answered came late') end
  if latest == number then
    -- Written, so that whoever waits for replicas now waits for what the first copy wrote.
    call('PEXPIRE', KEYS[8], RECEIPT_MS)
    kept = cmsgpack.unpack(string.sub(raw, 9))
    if #kept >= 2 then kept[1], kept[2] = now, micros end
  end
end

-- keep writes the receipt of an answer. It stands behind all other writes, because a server
-- out of memory refuses it unless something was written. One that changed nothing needs none,
-- unless another copy may still be on its way.
local function keep(answer, changed)
  if changed or again then
    redis.pcall('SET', KEYS[8], struct.pack('<d', number) .. cmsgpack.pack(answer), 'PX', RECEIPT_MS)
  end
end
