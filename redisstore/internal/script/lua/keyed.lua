-- Messages with keys, in a topic that has them (Settings.Keyed). This file comes after start.lua.
-- docs/format-redis.md draws the format, and memstore/key.go says the same rules in Go.
--
-- KEYS  the last five, or those before h and u; a caller gives them only after it has learned from
--       an error that the topic has keys:
--       q sorted set: the heads of keys, and the messages of t without a key, by their turn
--       w sorted set, all scores 0: the members of the messages with a key that are not dead
--       k hash: key -> opened, gate and turn (doubles), how many leases the key has (4 bytes), and
--         the tails of the first of its messages that wait, each behind its length (2 bytes)
--       o hash: ID -> member of a message with a key, also of a dead one
--       i sorted set: keys without a message, by the time at which their rate has forgotten them
--
-- A member is key, \0, place, and its tail: time, arrival (doubles, so that their bytes are in
-- order), ID. The head of a key is the first of those that wait, unless the key has as many leases
-- as it may; then turn is NEVER. Claims take from q, so they meet no other message of a key.
--
-- A script notes what it changes, and arrange writes all of it, with one command for each set and
-- hash. What w says of a key can be told from w alone; k repeats it, because that is cheaper to
-- read.
do
  local LEASED, WAITING, DEAD, BEHIND = 1, 2, 3, 3 -- places
  local BIAS = 4503599627370496 -- 2^52 is added to times, because the bytes of negative doubles are not in order
  local KEY, KEY_BYTES = '<dddI4', 28
  local find, sub, byte, char, max, min = string.find, string.sub, string.byte, string.char, math.max, math.min
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
    -- members has, by ID, what was read of messages and changed since, false for one without a key:
    -- the member m, its key, its place, and where key and place part. keys has what was read of
    -- keys, and changed since: first is the tail of the first message that waits, and rest has the
    -- lengths and tails behind that. Without a first none waits if that is known. queued is the
    -- first as it is in q.
    local members, keys = {}, {}
    -- What arrange has to write: of members, whether they are in w; and of IDs, what o has, and the
    -- turn in q. false: not in there.
    local in_w, in_o, in_q = {}, {}, {}

    local function parse(m)
      local at = find(m, '\0', 1, true)
      return {m = m, key = sub(m, 1, at - 1), place = byte(m, at + 1), at = at}
    end

    local function time_of(tail) return unpack_from('>d', tail) - BIAS end
    local function tail_of(x) return sub(x.m, x.at + 2) end
    local function id_of(tail) return sub(tail, 17) end

    -- pop forgets the first message that waits.
    local function pop(key)
      local rest = key.rest
      if rest == '' then
        key.first, key.known = nil, false
        return
      end
      local n = unpack_from('<I2', rest)
      key.first, key.rest = sub(rest, 3, 2 + n), sub(rest, 3 + n)
    end

    -- read_keys reads what k has of keys.
    local function read_keys(some)
      if #some == 0 then return end
      for i, raw in ipairs(call('HMGET', k, unpack(some))) do
        local key
        if raw and #raw >= KEY_BYTES then
          local opened, gate, turn, leases = unpack_from(KEY, raw)
          if opened > now then opened = now end -- it is later only behind a step of the clock
          key = {opened = opened, gate = gate, turn = turn, leases = leases, skip = 0, raw = raw, rest = sub(raw, KEY_BYTES + 1)}
          pop(key)
          if turn < NEVER then key.queued = key.first end
        else
          key = {opened = 0, gate = 0, turn = NEVER, leases = 0, skip = 0, raw = raw, rest = '', known = true}
        end
        keys[some[i]] = key
      end
    end

    -- expect reads what k has of those of some keys that were not read before.
    function this.expect(some)
      local ask, asked = {}, {}
      for _, name in ipairs(some) do
        if not keys[name] and not asked[name] then ask[#ask + 1], asked[name] = name, true end
      end
      read_keys(ask)
    end

    -- read looks up messages, and what is known of their keys.
    function this.read(ids)
      local ask, some = {}, {}
      for _, id in ipairs(ids) do
        if members[id] == nil then ask[#ask + 1] = id end
      end
      for i, m in ipairs(#ask > 0 and call('HMGET', o, unpack(ask)) or {}) do
        local x = m and parse(m)
        members[ask[i]] = x
        if x then some[#some + 1] = x.key end
      end
      this.expect(some)
    end

    local function member_of(id)
      if members[id] == nil then this.read({id}) end
      return members[id]
    end

    local function get(name)
      if not keys[name] then read_keys({name}) end
      return keys[name]
    end

    local function full(key) return bound > 0 and key.leases >= bound end

    -- opens returns when the rate lets the next lease of a key begin: see lifecycle.Gate.
    local function opens(key)
      if interval == 0 then return 0 end
      key.gate = min(key.gate, fine_now + at_once * interval)
      return ceil((key.gate - (at_once - 1) * interval) / 1000)
    end

    local function count(name, from, to) return call('ZLEXCOUNT', w, '[' .. name .. '\0' .. char(from), '(' .. name .. '\0' .. char(to)) end

    local function with_length(tail) return pack('<I2', #tail) .. tail end

    -- waiting_of returns the first of the messages of a key that wait, as w has them, but for skip
    -- of them: the tail of the first one, or nil, and up to most - 1 others with their lengths.
    local function waiting_of(name, skip, most)
      local got = call('ZRANGEBYLEX', w, '[' .. name .. '\0\2', '(' .. name .. '\0\3', 'LIMIT', skip, most)
      local at, rest = #name + 3, ''
      for i = 2, #got do rest = rest .. with_length(sub(got[i], at)) end
      return got[1] and sub(got[1], at), rest
    end

    local function due_of(tail) return in_order and tonumber(call('ZSCORE', t, id_of(tail)) or now) or time_of(tail) end

    local function turn_of(key, due) return max(due, key.opened, opens(key)) end

    -- leave notes that a message leaves its lease, or the messages that wait. turned has arrange
    -- reckon the turn of the head anew.
    local function leave(id, x)
      local key = get(x.key)
      if not key.raw then key.known = false end -- k has lost the key
      if x.place == LEASED then
        local was = full(key)
        key.leases = max(0, key.leases - 1)
        if was and not full(key) then key.opened, key.turned = now, true end
      elseif x.place == WAITING then
        local tail = tail_of(x)
        if key.first == tail then
          local turn = key.queued == tail and key.turn or not full(key) and turn_of(key, due_of(tail)) or key.opened
          key.opened = max(key.opened, min(turn, now))
          pop(key)
        elseif key.rest ~= '' then
          local at = find(key.rest, tail, 1, true)
          if at then key.rest = sub(key.rest, 1, at - 3) .. sub(key.rest, at + #tail) end
        end
        if key.queued == tail then key.queued, in_q[id] = nil, false end
      end
      if x.place ~= DEAD then in_w[x.m] = false end
      return key
    end

    -- before tells whether the first of two messages of a key comes first; both are tails.
    local function before(a, b)
      local time_a, arrival_a = unpack_from('>dd', a)
      local time_b, arrival_b = unpack_from('>dd', b)
      return time_a < time_b or time_a == time_b and arrival_a < arrival_b
    end

    -- come notes that a message comes to those that wait.
    local REST = 1024 -- bytes
    local function come(key, tail)
      if not key.first then
        if key.known then key.first = tail end
      elseif before(tail, key.first) then
        key.first, key.rest = tail, #key.rest < REST and with_length(key.first) .. key.rest or ''
      else
        local at = 1
        while at < #key.rest do
          local n = unpack_from('<I2', key.rest, at)
          if before(tail, sub(key.rest, at + 2, at + 1 + n)) then
            key.rest = sub(key.rest, 1, at - 1) .. with_length(tail) .. (#key.rest < REST and sub(key.rest, at) or '')
            break
          end
          at = at + 2 + n
        end
      end
    end

    local function begun(key)
      key.leases, key.opened, key.turned = key.leases + 1, now, true
      if interval > 0 then
        opens(key)
        key.gate = max(fine_now, key.gate) + interval
      end
    end

    -- put notes where a message is from now on; rest is arrival and ID of its member.
    local function put(id, name, place, time, rest)
      local tail = pack('>d', time + BIAS) .. rest
      local m = name .. (place == LEASED and '\0\1' or place == WAITING and '\0\2' or '\0\3') .. tail
      if place ~= DEAD then in_w[m] = true end
      if place == WAITING then come(get(name), tail) end
      members[id], in_o[id] = {m = m, key = name, place = place, at = #name + 1}, m
    end

    -- move takes a stored message to where it belongs by its state.
    function this.move(id, st)
      local x = member_of(id)
      if not x then
        in_q[id] = st.token == 0 and st.reason == 0 and st.due
        return
      end
      if not x.taken then leave(id, x) end
      local dead = st.reason > 0
      put(id, x.key, dead and DEAD or WAITING, dead and now or in_order and st.first or st.due, sub(x.m, x.at + 10))
    end

    -- forget takes messages out that are deleted.
    function this.forget(ids)
      this.read(ids)
      for _, id in ipairs(ids) do
        local x = members[id]
        if not x then
          in_q[id] = false
        else
          if not x.taken then leave(id, x) end
          members[id], in_o[id] = false, false
        end
      end
    end

    -- add takes in a new message. name is nil for one without a key.
    function this.add(id, name, due)
      if not name then
        in_q[id] = due
        return
      end
      arrivals = arrivals + 1
      put(id, name, WAITING, due, pack('>d', arrivals) .. id)
    end

    -- write writes what is noted of the set or hash at, and forgets the notes. It returns how many
    -- members or fields are new.
    local function write(noted, remove, add, at, is_set)
      local gone, come, n_gone, n_come = {}, {}, 0, 0
      for member, v in pairs(noted) do
        if v then
          if is_set then come[n_come + 1], come[n_come + 2] = v == true and '0' or v == now and now_text or int(v), member else come[n_come + 1], come[n_come + 2] = member, v end
          n_come = n_come + 2
        else
          n_gone = n_gone + 1
          gone[n_gone] = member
        end
        noted[member] = nil
      end
      local added = 0
      for i = 1, n_gone, 1000 do call(remove, at, unpack(gone, i, min(i + 999, n_gone))) end
      for i = 1, n_come, 1000 do added = added + call(add, at, unpack(come, i, min(i + 999, n_come))) end
      return added
    end

    local function write_members()
      write(in_o, 'HDEL', 'HSET', o, false)
      return write(in_w, 'ZREM', 'ZADD', w, true)
    end

    local AHEAD = 4 -- how many of the messages that wait k has of a key, where arrange had to ask w

    -- arrange writes what was noted. It chooses the head, and its turn, of all keys of which
    -- something has changed, and returns how many heads have changed, and the earliest turn of
    -- these.
    function this.arrange()
      local changed, soonest, in_k = 0, NEVER, {}
      write_members()
      for name, key in pairs(keys) do
        local leases, was = key.leases, key.queued
        if key.doubted then key.leases, key.turned = count(name, LEASED, WAITING), true end
        if key.doubted or not (key.first or key.known or full(key)) then key.first, key.rest = waiting_of(name, 0, AHEAD) end
        local head = not full(key) and key.first or nil
        if was and was ~= head then in_q[id_of(was)] = false end
        local turn = head and (head == was and not key.turned and key.turn or turn_of(key, due_of(head))) or NEVER
        local id = head and id_of(head)
        if head and (head ~= was or turn ~= key.turn) or key.doubted and (key.leases ~= leases or head and not call('ZSCORE', q, id)) then
          changed = changed + 1
          if head then in_q[id], soonest = turn, min(soonest, turn) end
        elseif head and in_q[id] == false then
          in_q[id] = turn -- see heal
        end
        local raw = pack(KEY, key.opened, key.gate, turn, key.leases)
        if key.first then
          raw = raw .. with_length(key.first) .. key.rest
        elseif key.leases == 0 then
          raw = interval > 0 and key.gate > fine_now and raw
          if raw then call('ZADD', idle, int(ceil(key.gate / 1000)), name) end
        end
        if raw ~= (key.raw or false) then in_k[name] = raw end
      end
      write(in_q, 'ZREM', 'ZADD', q, true)
      write(in_k, 'HDEL', 'HSET', k, false)
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

    -- behind doubts up to most keys of which a message waits or is leased, behind a key, or the
    -- first ones behind '', so that arrange tells from w what k has to say of them. It returns the
    -- last one, or nil if there are no more.
    local function behind(name, most)
      for _ = 1, most do
        local m = call('ZRANGEBYLEX', w, name == '' and '-' or '(' .. name .. '\1', '+', 'LIMIT', 0, 1)[1]
        if not m then return nil end
        name = parse(m).key
        get(name).doubted = true
      end
      return name
    end

    -- A walk arranges all keys anew, after bounds or the clock have changed. If the order has
    -- changed, or a key of Redis was lost, it first gives all messages their places: those of o in
    -- w, and those of t without a key in q. Its pieces are made by claims, so no script takes long.
    local WALK = 100

    function this.begin_walk(reorders)
      reorders = reorders or this.walking and sub(this.walking, 1, 1) ~= 'w'
      this.walking = reorders and 'o0' or 'w'
      call('HSET', of, 'walk', this.walking)
    end

    -- reorder gives some messages of o their places in w. It returns a cursor to go on, and how
    -- many members are new.
    local function reorder(cursor, states)
      local some, ids = call('HSCAN', o, cursor, 'COUNT', WALK), {}
      for i = 1, #some[2], 2 do
        local id, x = some[2][i], parse(some[2][i + 1])
        members[id] = x
        if x.place == WAITING then ids[#ids + 1] = id elseif x.place == LEASED then in_w[x.m] = true end
      end
      local known = states(ids)
      for _, id in ipairs(ids) do
        local x, due = members[id], tonumber(call('ZSCORE', t, id) or now)
        in_w[x.m] = false
        put(id, x.key, WAITING, in_order and known[id] and known[id].first or due, sub(x.m, x.at + 10))
      end
      keys = {}
      return some[1], write_members()
    end

    -- without_keys puts those of t from a place on into q that have no key. It returns where to go
    -- on, or nil, and how many are new.
    local function without_keys(place)
      local some, ids = call('ZRANGE', t, place, place + WALK - 1, 'WITHSCORES'), {}
      for i = 1, #some, 2 do ids[#ids + 1] = some[i] end
      this.read(ids)
      for i, id in ipairs(ids) do
        if not members[id] then in_q[id] = tonumber(some[2 * i]) end
      end
      keys = {}
      return #ids == WALK and place + WALK or nil, write(in_q, 'ZREM', 'ZADD', q, true)
    end

    -- piece makes a piece of a walk. It returns the place of the next one, or nil, and how much was
    -- not as it should be. states is that of prelude.lua.
    local function piece(at, states)
      local phase, place, changed = sub(at, 1, 1), sub(at, 2), 0
      if phase == 'o' then
        place, changed = reorder(place, states)
        return place == '0' and 't0' or 'o' .. place, changed
      elseif phase == 't' then
        place, changed = without_keys(tonumber(place))
        return place and 't' .. int(place) or 'w', changed
      end
      place = behind(place, WALK)
      return place and 'w' .. place, (this.arrange())
    end

    -- walk makes a piece of the walk, and reports whether another is left.
    function this.walk(states)
      make_room()
      this.walking = piece(this.walking, states)
      if this.walking then call('HSET', of, 'walk', this.walking) else call('HDEL', of, 'walk') end
      return this.walking
    end

    -- heal repairs a part of what should be in order: a piece of a walk without end, and the first
    -- keys of q. If q, w or k is not there and should be, it begins a walk. It logs what it has
    -- found, in which messages would not have come any more. leased and dead are how many there
    -- are.
    function this.heal(states, leased, dead)
      if this.walking then return end
      make_room()
      local waits, all = call('ZCARD', t), call('ZCARD', w)
      if all == 0 and call('HLEN', o) > dead or all > 0 and call('HLEN', k) == 0 or waits > 0 and leased == 0 and call('ZCARD', q) == 0 then
        redis.log(redis.LOG_WARNING, 'punctual: one of ' .. table.concat(names, ', ') .. ' was lost, and is made anew')
        this.begin_walk(true)
        return
      end
      local at, changed, found = got[7] or 'o0', 0, 0
      for _ = 1, 3 do -- a small topic in one go
        at, found = piece(at, states)
        changed = changed + found
        if at ~= 't0' and at ~= 'w' then break end
      end
      local first = call('ZRANGE', q, 0, WALK - 1)
      this.read(first)
      local in_t = #first > 0 and call('ZMSCORE', t, unpack(first))
      for i, id in ipairs(first) do
        local x = members[id]
        if x then get(x.key).doubted = true end
        if x or not in_t[i] then in_q[id] = false end
      end
      changed = changed + this.arrange()
      call('HSET', of, 'swept', at or 'o0')
      if changed > 0 then redis.log(redis.LOG_WARNING, 'punctual: ' .. changed .. ' keys or messages of ' .. w .. ' had not the place that they should have, and have it now') end
    end

    -- next_lease returns when the next lease ends. Where a lease that has run out may have to wait
    -- for the rate of its key, only others count.
    function this.next_lease(leases)
      local first = interval == 0 and call('ZRANGE', leases, 0, 0, 'WITHSCORES') or call('ZRANGEBYSCORE', leases, '(' .. now_text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      return ceil(first[2] or NEVER)
    end

    -- next_due is next_due_time of the topic.
    function this.next_due(leases)
      return min(tonumber(call('ZRANGE', q, 0, 0, 'WITHSCORES')[2] or NEVER), this.next_lease(leases))
    end

    -- waits reports whether a message that is ready waits for its key.
    function this.waits(id)
      local x = member_of(id)
      if not x then return false end
      if x.place == LEASED then return opens(get(x.key)) > now end
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

    -- What a claim decides.

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
      local x = member_of(id)
      if not x then return '' end
      local key = get(x.key)
      if x.place == LEASED then
        if opens(key) <= now then return min(time_of(tail_of(x)), now) end
        this.blocked, this.refused = min(this.blocked, opens(key)), this.refused + 1
        return nil
      end
      local at = turn_of(key, due)
      return at <= now and key.first and id_of(key.first) == id and not full(key) and at or nil
    end

    -- turn_of_lease returns when the turn of a leased message came, in digits; '' without a key.
    function this.turn_of_lease(id)
      local x = member_of(id)
      return x and int(time_of(tail_of(x))) or ''
    end

    -- take notes that a message is leased, or ends. It returns the message of its key that comes
    -- next, and its due time, if the turn of that message has come.
    function this.take(id, ends, turn)
      local x = member_of(id)
      if not x then
        in_q[id] = false
        return nil
      end
      local key = get(x.key)
      leave(id, x)
      if x.place == WAITING then key.skip = key.skip + 1 end
      if ends then
        x.taken = true
      else
        begun(key)
        put(id, x.key, LEASED, turn, sub(x.m, x.at + 10))
      end
      if full(key) or key.queued then return nil end
      if not key.first and not key.known then
        key.first, key.rest = waiting_of(x.key, key.skip, AHEAD)
        key.known = true
      end
      local next = key.first
      local due = next and next ~= key.offered and due_of(next)
      if not due or turn_of(key, due) > now then return nil end
      key.offered = next
      local id_of_next = id_of(next)
      members[id_of_next] = members[id_of_next] or {m = x.key .. '\0\2' .. next, key = x.key, place = WAITING, at = #x.key + 1}
      return id_of_next, due
    end

    -- dues replaces those of times that are there, from a place on, which are turns, by the due
    -- times of the messages with these IDs in q.
    function this.dues(ids, times, from)
      this.read({unpack(ids, from)})
      local t_times = in_order and #ids >= from and call('ZMSCORE', t, unpack(ids, from))
      for n = from, #ids do
        local x = times[n] and members[ids[n]]
        if x then
          if x.place ~= WAITING then corrupt('message ' .. ids[n] .. ' is in ' .. q .. ' and does not wait') end
          times[n] = t_times and tonumber(t_times[n - from + 1] or corrupt('message ' .. ids[n] .. ' is not in ' .. t)) or time_of(tail_of(x))
        end
      end
    end

    -- check returns what is wrong with a message in the set at, or nil.
    function this.check(id, at, leases)
      local x = member_of(id)
      local place = at and WAITING or leases and LEASED or DEAD
      if not x then return at and not call('ZSCORE', q, id) and 'waits without a key and is not in q' or nil end
      if x.place ~= place or place ~= DEAD and not call('ZSCORE', w, x.m) then return 'is not where its key has it' end
      local key = get(x.key)
      if key.leases ~= count(x.key, LEASED, WAITING) then return 'has a key with another number of leases than it says' end
      local n, at = key.first and 1 or 0, 1
      while at < #key.rest do
        n, at = n + 1, at + 2 + unpack_from('<I2', key.rest, at)
      end
      local first, rest = waiting_of(x.key, 0, max(1, n))
      local head = not full(key) and first
      if (key.first or head) and (key.first ~= first or key.rest ~= rest) or head and not (key.queued == head and call('ZSCORE', q, id_of(head))) then
        return 'has a key without the head that it should have'
      end
      return nil
    end

    return this
  end
end
