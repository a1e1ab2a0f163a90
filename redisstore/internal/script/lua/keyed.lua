-- Messages with keys, in a topic that has them (Settings.Keyed). This file comes after prelude.lua.
-- docs/format-redis.md draws the format, and memstore/key.go says the same rules in Go.
--
-- KEYS  the last five, or those before h and u; a caller gives them only after it has learned from
--       an error that the topic has keys:
--       q sorted set: the heads of keys, and the messages of t without a key, by their turn
--       w sorted set, all scores 0: the members of the messages with a key that are not dead
--       k hash: key -> opened, gate and turn of the head (doubles), and the ID of the head
--       o hash: ID -> member of a message with a key, also of a dead one
--       i sorted set: keys without a message, by the time at which their rate has forgotten them
--
-- A member is key, \0, place, time, arrival (both doubles, so that their bytes are in order), ID.
-- The head of a key is the first of those that wait, unless the key has as many leases as it may.
-- Claims take from q, so they meet no other message of a key.
do
  local LEASED, WAITING, DEAD, BEHIND = '\1', '\2', '\3', '\3' -- places
  local BIAS = 4503599627370496 -- 2^52 is added to times, because the bytes of negative doubles are not in order
  local KEY, HEAD = '<ddd', 25
  local fine_now = now * 1000 + micros % 1000

  -- new makes what keeps the keys of a partition; t and of are its sorted set t and its hash g.
  function keyed.new(names, t, of)
    local q, w, k, o, idle = unpack(names)
    for _, set in ipairs({q, w, idle}) do call('ZCARD', set) end
    for _, hash in ipairs({k, o}) do call('HLEN', hash) end
    local got = call('HMGET', of, 'key_leases', 'key_interval', 'key_at_once', 'in_order', 'arrivals', 'walk', 'swept')
    local function number_at(i) return got[i] and whole(got[i], 'of keys', of) or 0 end
    local bound, interval, at_once, in_order, arrivals = number_at(1), number_at(2), number_at(3), got[4] == '1', number_at(5)
    local this = {walking = got[6], in_order = in_order, bounds = table.concat({bound, interval, at_once, got[4] or ''}, ' ')}
    local members, keys = {}, {} -- by ID, and by key, as far as they were read

    local function member_of(id)
      if members[id] == nil then members[id] = call('HGET', o, id) end
      return members[id]
    end

    -- split returns key, place, time, arrival and ID of a member.
    local function split(m)
      local at = string.find(m, '\0', 1, true)
      return string.sub(m, 1, at - 1), string.sub(m, at + 1, at + 1), unpack_from('>d', m, at + 2) - BIAS, string.sub(m, at + 10, at + 17), string.sub(m, at + 18)
    end

    local function count(name, from, to) return call('ZLEXCOUNT', w, '[' .. name .. '\0' .. from, '(' .. name .. '\0' .. to) end

    local function get(name)
      local key = keys[name]
      if key then return key end
      key = {opened = 0, gate = 0, turn = 0, skip = 0, leases = bound > 0 and count(name, LEASED, WAITING) or 0}
      local raw = call('HGET', k, name)
      if raw and #raw >= HEAD - 1 then
        key.opened, key.gate, key.turn = unpack_from(KEY, raw)
        key.opened = math.min(key.opened, now) -- it is later only behind a step of the clock
        if #raw >= HEAD then key.head = string.sub(raw, HEAD) end
      end
      key.first = key.head
      keys[name] = key
      return key
    end

    local function full(key) return bound > 0 and key.leases >= bound end

    -- opens returns when the rate lets the next lease of a key begin: see lifecycle.Gate.
    local function opens(key)
      if interval == 0 then return 0 end
      key.gate = math.min(key.gate, fine_now + at_once * interval)
      return ceil((key.gate - (at_once - 1) * interval) / 1000)
    end

    local function first_waiting(name, skip)
      local m = call('ZRANGEBYLEX', w, '[' .. name .. '\0' .. WAITING, '(' .. name .. '\0' .. BEHIND, 'LIMIT', skip, 1)[1]
      if not m then return nil end
      local _, _, _, _, id = split(m)
      return id
    end

    -- left notes that a message leaves its lease, or the messages that wait.
    local function left(key, id, place)
      if place == LEASED then
        local was = full(key)
        key.leases = math.max(0, key.leases - 1)
        if was and not full(key) then key.opened = now end
      elseif place == WAITING and key.first == id then
        key.first, key.opened = nil, math.max(key.opened, math.min(key.turn, now))
      end
    end

    local function begun(key)
      key.leases, key.opened = key.leases + 1, now
      if interval > 0 then
        opens(key)
        key.gate = math.max(fine_now, key.gate) + interval
      end
    end

    local function leave(id, m)
      local name, place = split(m)
      local key = get(name)
      left(key, id, place)
      if key.head == id then
        call('ZREM', q, id)
        key.head = nil
      end
      if place ~= DEAD then call('ZREM', w, m) end
      return name, place, key
    end

    local function put(id, name, place, time, arrival)
      local m = name .. '\0' .. place .. pack('>d', time + BIAS) .. arrival .. id
      if place ~= DEAD then call('ZADD', w, 0, m) end
      call('HSET', o, id, m)
      members[id] = m
    end

    local function time_of(due, first) return in_order and first or due end

    -- move takes a stored message to where it belongs by its state. st.turn is there if it is
    -- leased.
    function this.move(id, st)
      local m = member_of(id)
      if not m then
        if st.token == 0 and st.reason == 0 then call('ZADD', q, int(st.due), id) else call('ZREM', q, id) end
        return
      end
      local _, _, _, arrival = split(m)
      local name, _, key = leave(id, m)
      if st.reason > 0 then
        put(id, name, DEAD, now, arrival)
      elseif st.token == 0 then
        put(id, name, WAITING, time_of(st.due, st.first), arrival)
      else
        begun(key)
        put(id, name, LEASED, st.turn, arrival)
      end
    end

    -- forget takes messages out that are deleted.
    function this.forget(ids)
      for i, m in ipairs(call('HMGET', o, unpack(ids))) do
        if m then leave(ids[i], m) end
        members[ids[i]] = false
      end
      call('ZREM', q, unpack(ids))
      call('HDEL', o, unpack(ids))
    end

    -- add takes in a new message. name is nil for one without a key; replaced says that another one
    -- had its ID.
    function this.add(id, name, due, replaced)
      if replaced then this.forget({id}) end
      if not name then
        call('ZADD', q, int(due), id)
        return
      end
      arrivals = arrivals + 1
      get(name)
      put(id, name, WAITING, due, pack('>d', arrivals))
    end

    -- arrange chooses the head, and its turn, of all keys of which something has changed. It
    -- returns how many heads have changed, and the earliest turn of these.
    function this.arrange()
      local changed, soonest = 0, NEVER
      for name, key in pairs(keys) do
        local id = not full(key) and first_waiting(name, 0) or nil
        if key.head and key.head ~= id then call('ZREM', q, key.head) end
        local turn = id and math.max(tonumber(call('ZSCORE', t, id) or now), key.opened, opens(key)) or 0
        if id and (id ~= key.head or turn ~= key.turn) then
          call('ZADD', q, int(turn), id)
          changed, soonest = changed + 1, math.min(soonest, turn)
        end
        if id or count(name, LEASED, BEHIND) > 0 then
          call('HSET', k, name, pack(KEY, key.opened, key.gate, turn) .. (id or ''))
        elseif interval > 0 and key.gate > fine_now then
          call('HSET', k, name, pack(KEY, key.opened, key.gate, 0))
          call('ZADD', idle, int(ceil(key.gate / 1000)), name)
        else
          call('HDEL', k, name)
        end
      end
      if arrivals ~= number_at(5) then call('HSET', of, 'arrivals', int(arrivals)) end
      keys = {}
      return changed, soonest
    end

    -- sweep forgets keys without a message whose rate has forgotten their leases.
    function this.sweep()
      local past = call('ZRANGEBYSCORE', idle, '-inf', now_text, 'LIMIT', 0, 512)
      if #past == 0 then return false end
      call('ZREM', idle, unpack(past))
      for _, name in ipairs(past) do
        if count(name, LEASED, BEHIND) == 0 then call('HDEL', k, name) end
      end
      return true
    end

    -- behind reads up to most keys of which a message waits or is leased, behind a key, or the
    -- first ones behind ''. It returns the last one, or nil if there are no more.
    local function behind(name, most)
      for _ = 1, most do
        local m = call('ZRANGEBYLEX', w, name == '' and '-' or '(' .. name .. '\1', '+', 'LIMIT', 0, 1)[1]
        if not m then return nil end
        name = split(m)
        get(name)
      end
      return name
    end

    -- A walk arranges all keys anew, after bounds or the clock have changed. If the order has
    -- changed, it first gives the messages that wait their new places. Its pieces are made by
    -- claims, so no script takes long.
    local WALK = 100

    function this.begin_walk(reorders)
      reorders = reorders or this.walking and string.sub(this.walking, 1, 1) == 'o'
      this.walking = reorders and 'o0' or 'w'
      call('HSET', of, 'walk', this.walking)
    end

    local function reorder(cursor)
      local some, ids = call('HSCAN', o, cursor, 'COUNT', WALK), {}
      for i = 1, #some[2], 2 do
        local _, place = split(some[2][i + 1])
        if place == WAITING then ids[#ids + 1], members[some[2][i]] = some[2][i], some[2][i + 1] end
      end
      local known = states(ids)
      for _, id in ipairs(ids) do
        local m, due = members[id], tonumber(call('ZSCORE', t, id) or now)
        local name, _, _, arrival = split(m)
        call('ZREM', w, m)
        put(id, name, WAITING, time_of(due, known[id] and known[id].first or due), arrival)
      end
      return some[1]
    end

    -- walk makes a piece of the walk, and reports whether another is left.
    function this.walk()
      make_room()
      local phase, at = string.sub(this.walking, 1, 1), string.sub(this.walking, 2)
      if phase == 'o' then
        at = reorder(at)
        this.walking = at == '0' and 'w' or 'o' .. at
      else
        at = behind(at, WALK)
        this.arrange()
        this.walking = at and 'w' .. at
      end
      if this.walking then call('HSET', of, 'walk', this.walking) else call('HDEL', of, 'walk') end
      return this.walking
    end

    -- heal arranges some keys anew that should be in order. It logs if one was not, in which no
    -- message would have come any more.
    function this.heal()
      if this.walking then return end
      make_room()
      local at = behind(got[7] or '', WALK)
      local changed = this.arrange()
      call('HSET', of, 'swept', at or '')
      if changed > 0 then redis.log(redis.LOG_WARNING, 'punctual: ' .. changed .. ' keys of ' .. w .. ' had not the head that they should have, and have it now') end
    end

    -- next_lease returns when the next lease ends. Where a lease that has run out may have to wait
    -- for the rate of its key, only others count.
    function this.next_lease(leases)
      local first = interval == 0 and call('ZRANGE', leases, 0, 0, 'WITHSCORES') or call('ZRANGEBYSCORE', leases, '(' .. now_text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      return ceil(first[2] or NEVER)
    end

    -- next_due is next_due_time of the topic.
    function this.next_due(leases)
      return math.min(tonumber(call('ZRANGE', q, 0, 0, 'WITHSCORES')[2] or NEVER), this.next_lease(leases))
    end

    -- waits reports whether a message that is ready waits for its key.
    function this.waits(id)
      local m = member_of(id)
      if not m then return false end
      local name, place = split(m)
      if place == LEASED then return opens(get(name)) > now end
      return tonumber(call('ZSCORE', q, id) or NEVER) > now
    end

    -- waiting counts the messages that wait for their keys: due of t, and of up to 1000 leases that
    -- have run out.
    function this.waiting(due, leases)
      local n = due - call('ZCOUNT', q, '-inf', now_text)
      if interval > 0 then
        for _, id in ipairs(call('ZRANGEBYSCORE', leases, '-inf', now_text, 'LIMIT', 0, 1000)) do
          if this.waits(id) then n = n + 1 end
        end
      end
      return n
    end

    -- What a claim decides, before it writes. reset forgets what the claim has decided so far.
    function this.reset() keys = {} end

    -- blocked is when the rate lets the first of those begin whose lease has run out and which turn
    -- has refused, and refused is how many there are.
    this.blocked, this.refused = NEVER, 0

    -- left_over returns when a claim may find one of the leases that have run out, and now if it
    -- has not seen all of them. It waits a little where there are very many for which it is too
    -- early.
    function this.left_over(leases)
      if this.walking then return now end
      if interval == 0 or call('ZCOUNT', leases, '-inf', now_text) <= this.refused then return this.blocked end
      return this.refused < 500 and now or now + 100
    end

    -- turn returns when the turn of a message came, or nil if the message waits for its key. It
    -- returns '' for a message without a key.
    function this.turn(id, due)
      local m = member_of(id)
      if not m then return '' end
      local name, place, time = split(m)
      local key = get(name)
      if place == LEASED then
        if opens(key) <= now then return math.min(time, now) end
        this.blocked, this.refused = math.min(this.blocked, opens(key)), this.refused + 1
        return nil
      end
      local at = math.max(due, key.opened, opens(key))
      return key.first == id and at <= now and at or nil
    end

    -- take notes that a message is leased, or ends. It returns the message of its key that comes
    -- next, if there is one and that was not known before.
    function this.take(id, ends)
      local m = member_of(id)
      if not m then return nil end
      local name, place = split(m)
      local key = get(name)
      left(key, id, place)
      if place == WAITING then key.skip = key.skip + 1 end
      if not ends then begun(key) end
      if key.first or full(key) then return nil end
      key.first = first_waiting(name, key.skip)
      return key.first
    end

    -- check returns what is wrong with a message in the set at, or nil.
    function this.check(id, at, leases)
      local m = member_of(id)
      local place = at and WAITING or leases and LEASED or DEAD
      if not m then return at and not call('ZSCORE', q, id) and 'waits without a key and is not in q' or nil end
      local name, is = split(m)
      if is ~= place or place ~= DEAD and not call('ZSCORE', w, m) then return 'is not where its key has it' end
      local key = get(name)
      if place == WAITING and not full(key) and (key.head ~= first_waiting(name, 0) or not call('ZSCORE', q, key.head)) then
        return 'waits for its key, which has not the head that it should have'
      end
      return nil
    end

    return this
  end

  if keyed.names then keyed.own = keyed.new(keyed.names, T, G) end
end
