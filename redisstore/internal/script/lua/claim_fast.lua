-- The fast path of claim.lua, for due messages that all wait for their first attempt, are short,
-- and have no flag that scripts read, while no lease has run out. It gives compact leases: the
-- score in l holds token and end of the lease, so that no message needs a state. Otherwise it
-- writes nothing, and claim.lua goes on. KEYS, ARGV and reply are those of claim.lua.
do -- so that its local variables do not count in claim.lua, because a script may have 200
  local USUAL_BYTES = 4096 + MESSAGE_BYTES -- of a message at most, because settling a compact lease may read it
  local TURNS, LENGTHS = 32, 32            -- see lease_token
  local LAST_COMPACT_LEASE = 8796093022208 -- 2^43: a score has room for token and length up to here
  local AT_ONCE = 64                       -- bodies are read a few at a time, because their length is not known before

  -- free_length returns a place in lengths, from 0, that no lease in l uses, or nil. It looks for
  -- one only in one ms of 16, and only if l has at most FREE_MOST leases, because it has to read
  -- all of l. That ms is not a multiple of 16, because at a multiple of 16 claims may tidy, and
  -- then do not come here.
  local function free_length()
    local FREE_EACH, FREE_MOST = 16, 1024
    if now % FREE_EACH ~= 1 or call('ZCARD', L) > FREE_MOST then return nil end
    local used, leases = {}, call('ZRANGE', L, 0, -1, 'WITHSCORES')
    for i = 2, #leases, 2 do
      local score = tonumber(leases[i])
      local k = (ceil(score) - score) * 1024
      if k > 0 then used[(k - k % TURNS) / TURNS] = true end
    end
    for place = 0, LENGTHS - 1 do
      if not used[place] then return place end
    end
    return nil
  end

  -- compact_lease returns token, end and score of a new lease, and the new value of the field
  -- lengths if it must change. It returns nil if a score cannot hold the lease.
  local function compact_lease(length)
    local counter = g[3] and whole(g[3], 'token') or 0
    local turn = math.max((counter - counter % TOKEN_STEP) / TOKEN_STEP - 8 * (now + shift), 0) + 1
    local lengths, till = g[9] or '', now + length
    if #lengths % 8 ~= 0 then corrupt('field lengths of ' .. G .. ' cannot be read') end
    local place = 0
    while place < #lengths / 8 and unpack_from('<d', lengths, 8 * place + 1) ~= length do place = place + 1 end
    local new = place == #lengths / 8
    if new and place >= LENGTHS then place = free_length() end
    if turn >= TURNS or not place or now + shift >= LAST_TOKEN_TIME or till >= LAST_COMPACT_LEASE then return nil end
    local token = (8 * (now + shift) + turn) * TOKEN_STEP + counter % TOKEN_STEP
    return token, till, till - (32 * place + turn) / 1024,
      new and string.sub(lengths, 1, 8 * place) .. pack('<d', length) .. string.sub(lengths, 8 * place + 9)
  end

  -- plain_messages reads messages until they have as many bytes as the claim may return. It returns
  -- them and their IDs, or nil if a compact lease does not do for one of them. take, unless nil, is
  -- called with each message, and may add IDs; it returns false if the fast path does not do.
  local function plain_messages(ids, take)
    local out, byte, n = {}, string.byte, #ids
    local first, last, bytes, enough = 1, 1, 0, tonumber(ARGV[5])
    while first <= n and bytes < enough do
      local some = call('HMGET', M, unpack(ids, first, last))
      for i = 1, #some do
        local raw = some[i]
        if not raw or not is_plain(byte(raw)) or #raw < MESSAGE_BYTES or #raw > USUAL_BYTES then return nil end
        out[first + i - 1] = raw
        bytes = bytes + #raw
        if take and not take(ids, first + i - 1, raw) then return nil end
      end
      n = #ids
      first, last = last + 1, math.min(last + AT_ONCE, n)
    end
    if #out < n then ids = {unpack(ids, 1, #out)} end
    if call('HLEN', S) > 1 then -- there is a state beside TABLE_FIELD, so a message that waits may have been claimed before
      for _, state in ipairs(call('HMGET', S, unpack(ids))) do
        if state then return nil end
      end
    end
    return out, ids
  end

  -- leases_of_keys returns take of plain_messages in a topic with keys, and the turns, which take
  -- fills in.
  local function leases_of_keys(own)
    local turns, most = {}, tonumber(ARGV[3])
    return turns, function(ids, n, raw)
      local id = ids[n]
      local _, _, due = unpack_from('<Bdd', raw)
      local turn = own.turn(id, due)
      if not turn then return false end
      turns[n] = turn == '' and '' or int(turn)
      local following = own.take(id, false, turn)
      if following and #ids < most then ids[#ids + 1] = following end
      return true
    end
  end

  local own
  if fast and not kept and keyed.names then
    own = keyed.new(keyed.names, T, G)
    next_leased = own.walking and now or ceil(call('ZRANGE', L, 0, 0, 'WITHSCORES')[2] or NEVER)
  end
  if fast and not kept and next_leased > now then
    local length = tonumber(ARGV[4])
    if length == 0 then length = whole(g[4], 'lease') end
    local token, till, score, lengths = compact_lease(length)
    local ids = token and call('ZRANGEBYSCORE', own and keyed.names[1] or T, '-inf', now_text, 'LIMIT', 0, ARGV[3])
    local messages, turns, take
    if own and ids then
      if #ids == 0 then return {now, micros, tonumber(g[1]), math.min(own.next_due(L), next_leased), 0, 0, 0, {}, {}, {}} end
      own.read(ids)
      turns, take = leases_of_keys(own)
    end
    if ids then messages, ids = plain_messages(ids, take) end
    if messages then
      local leases, text = {}, string.format('%.17g', score)
      for i = 1, #ids do leases[2 * i - 1], leases[2 * i] = text, ids[i] end
      local held = next_leased < NEVER and call('ZCARD', L) or 0
      if own then call('ZREM', T, unpack(ids)) else call('ZREMRANGEBYRANK', T, 0, #ids - 1) end
      if large.becomes(held, #ids) then large.add(L, leases) else call('ZADD', L, unpack(leases)) end
      if lengths then call('HSET', G, 'lengths', lengths) end
      call('HSET', G, 'token', int(token), 'clock', now_text)
      g[2] = now_text
      if own then
        -- Other processes have heard of the messages that this claim found, and not of those whose
        -- turn has come by it.
        local _, soonest = own.arrange()
        if #ids == tonumber(ARGV[3]) and soonest <= now + NEAR then publish(soonest) end
      end
      conclude({score = text, token = token, at = now, till = till, shift = shift, given = 1}, true)
      local next_due = call('ZRANGE', own and keyed.names[1] or T, 0, 0, 'WITHSCORES')[2]
      return {now, micros, tonumber(g[1]), math.min(next_due and tonumber(next_due) or NEVER, next_leased, till), now, till, token, ids, messages, {}, turns}
    end
  end
end
