-- The usual case of settle.lua: acks of leases without states that run. KEYS, ARGV and reply are those of settle.lua.
if kept then return kept end
local items = cmsgpack.unpack(ARGV[3])
local only_acks = ARGV[4] == '1'
local USUAL_STORY = STORY .. 'I5'

-- usual_acks returns the IDs to ack and the scores of their leases, or nil if one of them is not usual.
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
  return ids, scores
end

-- usual_stories returns ID, story, ID, story ... of messages under usual leases with such scores, or nil if one cannot be
-- read. Such a message is short, waited for the due time that it has, and ends at its first attempt.
local function usual_stories(ids, scores)
  local retention, kind, out = whole(g[10], 'finished_retention'), STORY_VERSION + ACKED + DELIVERED, {}
  local text, took
  for i, raw in ipairs(call('HMGET', M, unpack(ids))) do
    if not raw or #raw < MESSAGE_BYTES or not is_plain(string.byte(raw)) then return nil end
    if scores[i] ~= text then
      text = scores[i]
      local _, began = lease_token(tonumber(text))
      took = math.max(now - began, 0)
    end
    local created, due = unpack_from('<dd', raw, 2)
    out[2 * i - 1], out[2 * i] = ids[i], pack(USUAL_STORY, kind, now, retention, created, due, took)
  end
  return out
end

if only_acks and flags == 0 and g[4] and g[9] and g[10] ~= '0' then
  local ids, scores = usual_acks()
  local keeps = g[10] -- and then h and u are there
  local stories = ids and keeps and usual_stories(ids, scores)
  if ids and (stories or not keeps) then
    -- A key of a wrong type fails before the first write.
    local window = g[7] ~= '0' and whole(g[7], 'dedupe_window')
    local over = window and call('ZRANGEBYSCORE', F, '-inf', now_text, 'LIMIT', 0, 512)
    if keeps then
      call('HLEN', H)
      call('ZCARD', U)
    end
    local removed = call('HDEL', M, unpack(ids))
    call('ZREM', L, unpack(ids))
    if over then
      local till, times = int(now + window), {}
      for i = 1, #ids do times[2 * i - 1], times[2 * i] = till, ids[i] end
      call('ZADD', F, unpack(times))
      if #over > 0 then call('ZREM', F, unpack(over)) end
    end
    if keeps then
      put_stories(ids, stories, tonumber(keeps))
      sweep_stories()
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
