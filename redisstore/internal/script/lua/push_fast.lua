-- The fast path of push.lua, for a call in which no ID is in use, no message is refused, and none
-- has a remember or a condition, in a topic that does not tell of pushes. Otherwise it writes
-- nothing, and push.lua goes on. KEYS, ARGV and reply are those of push.lua.
if kept then return kept end
local NEW = 3
local OWN_WINDOW = 128 -- 8 times the flag of a message with a remember, the highest one; a message with a condition has 256
local items = cmsgpack.unpack(ARGV[3])

-- none_in_use reports whether no stored message has one of the IDs, none of them is in f, and no
-- two of them are the same.
local function none_in_use(ids)
  local seen = {}
  for _, id in ipairs(ids) do
    if seen[id] then return false end
    seen[id] = true
  end
  for _, message in ipairs(call('HMGET', M, unpack(ids))) do
    if message then return false end
  end
  for _, till in ipairs(call('ZMSCORE', F, unpack(ids))) do
    if till then return false end
  end
  return true
end

if flags == 0 and not (events and events.tells(events.own, events.PUSHED)) and g[4] and g[5] == '0' and g[1] == ARGV[4] then
  local records, times, own, earliest = {}, {}, {}, NEVER
  local by_delay, named, now_packed = pack('<Bd', PLAIN, now), pack('<Bd', PLAIN + NAMED, now), pack('<d', now)
  local last, due, text, due_packed, plain
  for i = 1, #items, 3 do
    local id, when, how = items[i], items[i + 1], items[i + 2]
    if when ~= last then
      last = when
      if type(when) == 'string' then
        due, text, plain = tonumber(when), when, named
      else
        due, plain = up + when, by_delay
        text = int(due)
      end
      due_packed = pack('<d', due)
      if due < earliest then earliest = due end
      if due > MAX_DUE then break end
    end
    local place = (i - 1) / 3
    local n, rest = 2 * place + 1, ARGV[5 + place]
    records[n], times[n], times[n + 1] = id, text, id
    if how == NEW then
      records[n + 1] = plain .. due_packed .. rest
    else
      if how >= OWN_WINDOW then -- the message has a remember and needs a state, or it has a condition
        due = NEVER
        break
      end
      if how % 8 ~= NEW then own[#own + 1] = id end
      records[n + 1] = string.char(string.byte(plain) + (how - how % 8) / 8) .. now_packed .. due_packed .. rest
    end
  end
  if due <= MAX_DUE and (#own == 0 or none_in_use(own)) then
    local notified, becomes_large = NEVER, false
    if earliest <= now + NEAR then
      becomes_large = #times >= 2 * large.FEW and large.becomes(call('ZCARD', T), #times / 2)
      local first = call('ZRANGE', T, 0, 0, 'WITHSCORES')[2]
      if not first or earliest < tonumber(first) then
        first = call('ZRANGE', L, 0, 0, 'WITHSCORES')[2]
        if not first or earliest < ceil(first) then notified = earliest end
      end
    end
    -- Additions come first, so that a server out of memory refuses the call before anything has
    -- changed.
    call('HSET', M, unpack(records))
    if becomes_large then
      large.add(T, times)
    else
      local added = redis.pcall('ZADD', T, unpack(times))
      if type(added) == 'table' then -- t is of a wrong type
        for i = 1, #records, 2 do call('HDEL', M, records[i]) end
        return added
      end
    end
    write_clock()
    if notified ~= NEVER then publish(notified) end
    local out = {now, micros, tonumber(g[1]), notified, up}
    conclude(out, true)
    return out
  end
end
