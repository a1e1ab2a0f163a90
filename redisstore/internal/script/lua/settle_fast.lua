-- The fast path of settle.lua, for a call that only acks, without follow-ups, under compact leases
-- that have not run out, in a topic that does not tell of acks and has not stopped keeping finished
-- records. Otherwise it writes nothing, and settle.lua goes on. KEYS, ARGV and reply are those of
-- settle.lua.
if kept then
  for k, p in ipairs(follow_topics or {}) do kept[3 + 2 * k] = p.version end -- the caller needs the present versions
  return kept
end
local items = cmsgpack.unpack(ARGV[3])
local only_acks = ARGV[4] == '1'
local ACKED_ONCE = FINISHED .. 'I5'

-- compact_acks returns the IDs to ack and the scores of their leases. It returns nil if a lease is
-- not compact, has run out or has another token than the ack.
local function compact_acks()
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

-- finished_of_acks returns ID, finished record, ID, finished record ... of messages with compact
-- leases of the given scores, or nil if a message is missing, cannot be read or has a flag that
-- scripts read. The message itself has all that the record needs, because a message under a compact
-- lease was never rescheduled and ends at its first attempt.
local function finished_of_acks(ids, scores)
  local retention, kind, out = whole(g[10], 'finished_retention'), FINISHED_VERSION + ACKED + DELIVERED, {}
  local text, took
  for i, raw in ipairs(call('HMGET', M, unpack(ids))) do
    if not raw or #raw < MESSAGE_BYTES or not is_plain(string.byte(raw)) then return nil end
    if scores[i] ~= text then
      text = scores[i]
      local _, began = lease_token(tonumber(text))
      took = math.max(now - began, 0)
    end
    local created, due = unpack_from('<dd', raw, 2)
    out[2 * i - 1], out[2 * i] = ids[i], pack(ACKED_ONCE, kind, now, retention, created, due, took)
  end
  return out
end

if only_acks and flags == 0 and g[6] ~= '2' and not (events and events.tells(events.own, events.ACKED)) and g[4] and g[9] and g[10] ~= '0' then
  local ids, scores = compact_acks()
  local keeps = g[10] -- start.lua has made sure that then H and U are given
  local finished = ids and keeps and finished_of_acks(ids, scores)
  if ids and (finished or not keeps) then
    -- These reads fail for a key of a wrong type, before the first write.
    local window = g[7] ~= '0' and whole(g[7], 'dedupe_window')
    local over = window and call('ZRANGEBYSCORE', F, '-inf', now_text, 'LIMIT', 0, 512)
    if keeps then
      call('HLEN', H)
      call('ZCARD', U)
    end
    local own = keyed.names and keyed.new(keyed.names, T, G)
    local was = own and own.next_due(L)
    local removed = call('HDEL', M, unpack(ids))
    call('ZREM', L, unpack(ids))
    local notified = NEVER
    if own then
      own.forget(ids)
      own.arrange()
      local next = own.next_due(L)
      if next < was and next <= now + NEAR then
        notified = next
        publish(next)
      end
    end
    if over then
      local till, times = int(now + window), {}
      for i = 1, #ids do times[2 * i - 1], times[2 * i] = till, ids[i] end
      call('ZADD', F, unpack(times))
      if #over > 0 then call('ZREM', F, unpack(over)) end
    end
    if keeps then
      put_finished(ids, finished, tonumber(keeps))
      sweep_finished()
    end
    write_clock()
    local out = {now, micros, tonumber(g[1]), notified}
    if removed < #ids then -- an ID was named twice, and its second ack finds no lease
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
