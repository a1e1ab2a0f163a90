-- An intake takes new messages into a partition: those of a push, and the follow-ups of
-- settlements. Here alone is decided what happens to a new message whose ID is in use (P7). This
-- file comes after prelude.lua and large_sets.lua.

-- new_intake makes the intake of a partition. p has the names of its sets and hashes: t, l, d, f,
-- m, s and x; how many messages wait, are leased, are dead, and how many IDs are remembered:
-- waiting, leased, dead, finished; how many leases are in x: lapsed; whether there is a state:
-- has_states; the time at which a dead message that is past its retention died at the latest: gone;
-- whether pushes are paused: paused; the source of the events of these messages (see events.lua),
-- or nil: source; and what keyed.lua keeps of the partition, or nil:
-- keyed.
local new_intake
do
  -- What is to be done when an ID is in use: how modulo 8. (how / 8 modulo 32 are the flags of the
  -- record.)
  local REPLACE, FAIL, NEW, REPLACE_DEAD = 1, 2, 3, 4 -- NEW: it cannot be in use, because the caller has just made it up
  -- IF_DUE is added to how to replace only a message that is due at the time which stands in front
  -- of the record, a double.
  local IF_DUE, IF_DUE_BYTES = 256, 8
  local HAS_KEY = 512 -- is added to how if the message has a key, which stands in front of the record
  local UNKEYED, DUPLICATE, REPLACED, IN_USE, TOO_FAR, PAUSED, FINISHED_DUPLICATE, DEAD, CHANGED = 1, 2, 3, 4, 5, 6, 7, 8, 9 -- see push.lua

  new_intake = function(p)
    -- held has, by ID, where the message with that ID is: {set, at: the score in the set, gone,
    -- due}. gone is true for a dead message past its retention that has not been swept. due is
    -- there only if it was looked up or given to hold. remembered has, by ID, whether a finished ID
    -- is still remembered; it has false for one in f whose time is over.
    local held, remembered = {}, {}
    -- All messages are stored with one command per key. If a message of this call replaces another
    -- one of this call, it takes the other's place in these arguments.
    local records, times, size, index = {}, {}, 0, {}
    local replaced, from_l, from_d, forgotten = {}, {}, {}, {}
    local key_of = {} -- by the place in records
    local own_states = {} -- of messages with a remember: ID -> state
    local plain_prefix, named_prefix = pack('<Bd', PLAIN, now), pack('<Bd', PLAIN + NAMED, now)
    local this = {earliest = NEVER} -- the earliest due time of a message that is stored

    -- read looks up where the messages are whose IDs refusal and store will be asked about.
    function this.read(ids)
      if #ids == 0 then return end
      for set, n in pairs({[p.t] = p.waiting, [p.l] = p.leased, [p.d] = p.dead}) do
        for i, score in ipairs(n > 0 and call('ZMSCORE', set, unpack(ids)) or {}) do
          if score then
            score = tonumber(score)
            held[ids[i]] = {set = set, at = score, gone = set == p.d and score <= p.gone}
          end
        end
      end
      for i, till in ipairs(p.finished > 0 and call('ZMSCORE', p.f, unpack(ids)) or {}) do
        if till then remembered[ids[i]] = tonumber(till) > now end
      end
    end

    -- due_of returns the due time of the stored message with an ID; h is what held has of it.
    local function due_of(id, h)
      if h.set == p.t then return h.at end
      if not h.due then
        local raw = call('HGET', p.s, id)
        if raw then
          h.due = decode_state(id, raw).due
        else -- a compact lease
          raw = call('HGET', p.m, id)
          message_flags(id, raw)
          local _, _, due = unpack_from('<Bdd', raw)
          h.due = due
        end
      end
      return h.due
    end

    -- state_number returns the state, as in punctual.State, of a stored message that is not dead.
    local function state_number(h)
      if h.set == p.l and h.at > now then return 3 end
      return h.set == p.t and h.at > now and 1 or 2
    end

    -- holds returns what held has of an ID, or nil, and whether the ID is remembered.
    function this.holds(id) return held[id], remembered[id] end

    -- hold notes what a settlement leaves under an ID: {set, at, due} or nil, and whether the ID is
    -- remembered then.
    function this.hold(id, h, is_remembered) held[id], remembered[id] = h, is_remembered end

    -- try begins a trial, and returns a function that takes back what hold and assume have noted
    -- since.
    function this.try()
      local h, r = {}, {}
      for id, x in pairs(held) do h[id] = x end
      for id, x in pairs(remembered) do r[id] = x end
      return function() held, remembered = h, r end
    end

    -- assume notes what store leaves under an ID, and stores nothing.
    function this.assume(id, due, how)
      if how % 8 ~= NEW then held[id], remembered[id] = {set = p.t, at = due}, nil end
    end

    -- refusal returns status, due time and state for the reply if a message is not to be stored,
    -- else nil.
    function this.refusal(id, due, how, rest)
      if due > MAX_DUE then return TOO_FAR, 0, 0 end
      if how >= HAS_KEY and not p.keyed then return UNKEYED, 0, 0 end
      if p.paused then return PAUSED, 0, 0 end
      if how == NEW then return nil end
      local mode, h = how % 8, held[id]
      if h and h.gone then h = nil end
      if has(how, IF_DUE) then
        if not h then return CHANGED, 0, 0 end
        if due_of(id, h) ~= unpack_from('<d', rest) then return CHANGED, due_of(id, h), 1 end
      end
      local dead = h and h.set == p.d
      if dead and mode ~= REPLACE and mode ~= REPLACE_DEAD then return DEAD, h.at, 4 end
      local in_use = h or mode ~= REPLACE and remembered[id]
      if in_use and mode == FAIL then return IN_USE, 0, 0 end
      if in_use and not dead and mode ~= REPLACE then
        if not h then return FINISHED_DUPLICATE, 0, 0 end
        return DUPLICATE, due_of(id, h), state_number(h)
      end
      return nil
    end

    -- store notes a message that is to be stored by write, and returns the status REPLACED if the
    -- message takes the place of another one. named says that somebody named the due time.
    function this.store(id, due, due_text, named, how, rest)
      local mode, flags = how % 8, floor(how % IF_DUE / 8)
      if has(how, IF_DUE) then rest = string.sub(rest, IF_DUE_BYTES + 1) end
      local key
      if how >= HAS_KEY then
        local length = string.byte(rest)
        key, rest = string.sub(rest, 2, 1 + length), string.sub(rest, 2 + length)
      end
      local n = index[id]
      if not n then
        n, size = size + 1, size + 2
        if mode ~= NEW then index[id] = n end
      end
      local prefix = flags > 0 and pack('<Bd', PLAIN + flags + (named and NAMED or 0), now) or named and named_prefix or plain_prefix
      records[n], records[n + 1] = id, prefix .. pack('<d', due) .. rest
      times[n], times[n + 1] = due_text, id
      key_of[n] = key
      if due < this.earliest then this.earliest = due end
      own_states[id] = has(flags, REMEMBER) and encode_state(fresh(id, records[n + 1])) or nil
      if p.source then events.tell(p.source, events.PUSHED, id, 0, now, due, due) end
      if mode == NEW then return nil end
      local h, status = held[id], nil
      if h then
        status = not h.gone and REPLACED or nil
        replaced[#replaced + 1] = id
        if h.set == p.l then from_l[#from_l + 1] = id elseif h.set == p.d then from_d[#from_d + 1] = id end
      end
      if remembered[id] ~= nil then forgotten[#forgotten + 1] = id end
      held[id], remembered[id] = {set = p.t, at = due}, nil
      return status
    end

    -- stored returns how many messages have been noted.
    function this.stored() return size / 2 end

    -- write stores the messages. Additions come first, so that a server out of memory refuses a
    -- push before anything has changed.
    function this.write()
      if size == 0 then return end
      call('HSET', p.m, unpack(records))
      if this.earliest <= now + NEAR and large.becomes(p.waiting, size / 2) then large.add(p.t, times) else call('ZADD', p.t, unpack(times)) end
      if #from_l > 0 then
        call('ZREM', p.l, unpack(from_l))
        if p.lapsed > 0 then call('ZREM', p.x, unpack(from_l)) end
      end
      if #from_d > 0 then call('ZREM', p.d, unpack(from_d)) end
      if #replaced > 0 then call('HDEL', p.s, unpack(replaced)) end
      if #forgotten > 0 then call('ZREM', p.f, unpack(forgotten)) end
      if p.keyed then
        local some = {}
        for _, key in pairs(key_of) do some[#some + 1] = key end
        p.keyed.forget(replaced)
        p.keyed.expect(some)
        for n = 1, size, 2 do p.keyed.add(records[n], key_of[n], tonumber(times[n])) end
      end
      if next(own_states) then
        local all = p.has_states and {} or {TABLE_FIELD, TABLE_VALUE}
        for id, state in pairs(own_states) do all[#all + 1], all[#all + 2] = id, state end
        call('HSET', p.s, unpack(all))
      end
    end

    return this
  end
end
