-- The usual case of settle.lua: acks of leases without states that run, in a topic without stories. KEYS, ARGV and reply are those of
-- settle.lua.
if kept then return kept end
local items = cmsgpack.unpack(ARGV[3])
local only_acks = ARGV[4] == '1'

-- usual_acks returns the IDs to ack, or nil if one of them is not usual.
local function usual_acks()
  local ids, tokens, n = {}, {}, 0
  local i = 1
  while i <= #items do
    local token = items[i]
    for j = i + 2, i + 1 + items[i + 1] do
      n = n + 1
      ids[n], tokens[n] = items[j], token
    end
    i = i + 2 + items[i + 1]
  end
  local scores = call('ZMSCORE', L, unpack(ids))
  local text, token
  for i = 1, n do
    if scores[i] ~= text then
      text = scores[i]
      if not text then return nil end
      local score = tonumber(text)
      if score <= now or score % 1 == 0 then return nil end
      token = lease_token(score)
    end
    if tokens[i] ~= token then return nil end
  end
  return ids
end

if only_acks and flags == 0 and g[4] and g[10] and not g[11] then
  local ids = usual_acks()
  if ids then
    local removed = call('HDEL', M, unpack(ids))
    call('ZREM', L, unpack(ids))
    if g[7] ~= '0' then
      local till, times = int(now + g[7]), {}
      for i = 1, #ids do times[2 * i - 1], times[2 * i] = till, ids[i] end
      call('ZADD', F, unpack(times))
      local over = call('ZRANGEBYSCORE', F, '-inf', now_text, 'LIMIT', 0, 512)
      if #over > 0 then call('ZREM', F, unpack(over)) end
    end
    write_clock()
    local out = {now, micros, tonumber(g[1]), NEVER}
    if removed < #ids then -- one was named twice
      local seen = {}
      for i = 1, #ids do
        if seen[ids[i]] then
          local n = #out
          out[n + 1], out[n + 2] = i - 1, 1
        end
        seen[ids[i]] = true
      end
    end
    conclude(out, true)
    return out
  end
end
