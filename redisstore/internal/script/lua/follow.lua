-- Follow-ups are messages that a settlement stores in one step with itself, in its own topic and in
-- others of the same hash slot. This file stands between intake.lua and settle.lua.
--
-- KEYS  after those of the records: eight for each other topic that has follow-ups, t to x as in
--       start.lua, or 13 in topics with keys: also q to i as in keyed.lua
-- ARGV  5 how many these topics are, below 0 if they have keys
--       6 the version of the settings of this partition by which the caller has chosen the IDs
--       7 msgpack: an array with, for each settlement that has follow-ups, its place among the
--       settlements, from 0, and how many follow-ups it has, and then four values for each of
--       these: its topic, by its place in KEYS from 1, or 0 for this one; and ID, due and how as
--       push.lua takes them
--       8 and so on, per follow-up: what push.lua is given per message from 5 on
--       All of these are there only if there are follow-ups
-- Reply of settle.lua: after notified stand, for each of the other topics, the version of its
--       settings here, as in a reply, and the time of which waiting claims were notified there.
--       A status above 15 is followed by due and state, as in the reply of push.lua. It is 16 times
--       the number of the follow-up that is refused, from 1, and 4, 5, 6, 8 or 9 as in push.lua,
--       10 no space, 11 its topic is not there, or 12 the topic of the settlement has another
--       version
local follow -- nil unless there are follow-ups
if ARGV[5] then
  local SPACE, TOPIC, VERSION = 10, 11, 12
  local DUPLICATE, FINISHED_DUPLICATE, CHANGED = 2, 7, 9 -- see push.lua; a duplicate is not stored, and that is no error
  local REPLACE_IF_DUE = 256
  local of_place, own, to = {}, nil, {} -- of_place has the follow-ups of a settlement, by its place
  local ids_of = {}                      -- by topic: the IDs that may be in use
  local NEW = 3
  local out_of_memory
  local other_version = cfg.version ~= tonumber(ARGV[6])

  -- The intakes of the other topics. These reads fail for a key of a wrong type, before anything is
  -- written.
  for k, p in ipairs(follow_topics) do
    p.waiting, p.leased, p.dead, p.finished = call('ZCARD', p.t), call('ZCARD', p.l), call('ZCARD', p.d), call('ZCARD', p.f)
    p.lapsed = call('ZCARD', p.x)
    call('HLEN', p.m)
    p.has_states = call('HLEN', p.s) > 0
    p.keyed = p.names and keyed.new(p.names, p.t, p.g)
    to[k] = new_intake(p)
  end

  -- due_in returns a due time and its digits. Follow-ups of one call mostly have the same delay.
  local digits = {}
  local function due_in(when)
    if type(when) == 'string' then return tonumber(when), when end
    digits[when] = digits[when] or int(up + when)
    return up + when, digits[when]
  end

  do
    local packed, i, n = cmsgpack.unpack(ARGV[7]), 1, 0
    while i <= #packed do
      local all = {}
      of_place[packed[i]] = all
      for j = 1, packed[i + 1] do
        local at = i + 2 + 4 * (j - 1)
        local topic, id, how = packed[at], packed[at + 1], packed[at + 3]
        local due, text = due_in(packed[at + 2])
        all[j] = {topic = topic, id = id, due = due, text = text, named = type(packed[at + 2]) == 'string', how = how, rest = ARGV[8 + n]}
        n = n + 1
        if how ~= NEW then
          ids_of[topic] = ids_of[topic] or {}
          local ids = ids_of[topic]
          ids[#ids + 1] = id
        end
        if topic == 0 then own = true end
      end
      i = i + 2 + 4 * packed[i + 1]
    end
  end
  if own then
    own = new_intake({
      t = T, l = L, d = D, f = F, m = M, s = S, x = X, waiting = waiting_count, leased = leased_count, dead = dead_count,
      finished = finished_count, lapsed = lapsed_count, has_states = state_count > 0, gone = gone, paused = cfg.push_paused,
      source = events and events.own, keyed = keyed.own,
    })
    own.read(ids_of[0] or {})
    to[0] = own
  end
  for k in ipairs(follow_topics) do to[k].read(ids_of[k] or {}) end

  follow = {own = own}

  -- room finds out whether the server is out of memory, and must come before the first write: such
  -- a server refuses the first write of a script if it adds something, and refuses none after a
  -- write that removes. So room begins with an addition, the time. If the server refuses it,
  -- settlements with follow-ups are refused, and those without go on. room returns an error of any
  -- other kind.
  function follow.room()
    local got = redis.pcall('HSET', G, 'clock', now_text)
    g[2] = now_text
    if type(got) ~= 'table' or not got.err then return nil end
    g[2] = nil
    if not string.find(got.err, 'OOM', 1, true) then return got end
    out_of_memory = true
    return nil
  end

  -- refusal returns status, due and state for the reply if a settlement cannot be done because of
  -- its follow-ups, or nil. id is that of the settled message; h and is_remembered are what the
  -- settlement leaves under that ID. refusal is asked before anything of the settlement is written.
  function follow.refusal(place, id, h, is_remembered)
    local all = of_place[place]
    if not all then return nil end
    local was, was_remembered
    if own then
      was, was_remembered = own.holds(id)
      own.hold(id, h, is_remembered)
    end
    local lookup, status, at, state
    for j, f in ipairs(all) do
      local p = follow_topics[f.topic]
      if other_version then
        lookup = lookup or 16 * j + VERSION
      elseif p and not p.is_there then
        -- A follow-up that would be refused in an empty topic, too, is refused now, so that the
        -- topic is not made for it.
        if f.due > MAX_DUE then status, at, state = 5, 0, 0 end
        if has(f.how, REPLACE_IF_DUE) then status, at, state = CHANGED, 0, 0 end
        lookup = lookup or 16 * j + TOPIC
      else
        status, at, state = to[f.topic].refusal(f.id, f.due, f.how, f.rest)
        f.kept = status == DUPLICATE or status == FINISHED_DUPLICATE
        if f.kept then status = nil end
      end
      if status then
        status = 16 * j + status
        break
      end
    end
    if not status and lookup then status, at, state = lookup, 0, 0 end
    if not status and out_of_memory then status, at, state = 16 + SPACE, 0, 0 end
    if status and own then own.hold(id, was, was_remembered) end
    return status, at, state
  end

  -- try begins a trial, and returns a function that ends it: what refusal, hold and assume note in
  -- between is forgotten then.
  function follow.try()
    local forgets = {}
    for k, into in pairs(to) do forgets[k] = into.try() end
    return function() for _, forget in pairs(forgets) do forget() end end
  end

  -- assume notes, in a trial, that the follow-ups of a settlement would be stored. replaced is
  -- called as by store.
  function follow.assume(place, replaced)
    for _, f in ipairs(of_place[place] or {}) do
      if not f.kept then
        to[f.topic].assume(f.id, f.due, f.how)
        if f.topic == 0 then replaced(f.id) end
      end
    end
  end

  -- to_look_up reports whether a status tells the caller to look a topic up and to send the
  -- settlement again.
  function follow.to_look_up(status) return status > 15 and status % 16 >= TOPIC end

  -- lacks_events reports whether a settlement that is not refused has a follow-up whose topic tells
  -- of it, while the companion events is not there.
  function follow.lacks_events(place)
    for _, f in ipairs(of_place[place] or {}) do
      local source = follow_topics[f.topic] and follow_topics[f.topic].source or f.topic == 0 and events.own or nil
      if not f.kept and events.lacks(source, events.PUSHED) then return true end
    end
    return false
  end

  -- store notes the follow-ups of a settlement that is done, and write stores them. replaced is
  -- called with the ID of each follow-up in the topic of the settlement, because a message with
  -- that ID, if there is one, is replaced.
  function follow.store(place, replaced)
    for _, f in ipairs(of_place[place] or {}) do
      if not f.kept then
        to[f.topic].store(f.id, f.due, f.text, f.named, f.how, f.rest)
        if f.topic == 0 then replaced(f.id) end
      end
    end
  end

  -- write stores the follow-ups. It adds to out what the caller is told of the other topics, and
  -- returns whether anything was stored.
  function follow.write(out)
    local any = false
    for k, p in ipairs(follow_topics) do
      local into, notified = to[k], NEVER
      if into.stored() > 0 then
        any = true
        local was, due = p.keyed and p.keyed.next_due(p.l) or next_due_time(p.t, p.l), into.earliest
        into.write()
        if p.keyed then
          p.keyed.arrange()
          due = p.keyed.next_due(p.l)
        end
        if due <= now + NEAR and due < was then notified = due end
        call('HSET', p.g, 'clock', now_text)
        if notified ~= NEVER then publish(notified, p.t) end
      end
      out[#out + 1], out[#out + 2] = p.version, notified
    end
    if own and own.stored() > 0 then
      any = true
      own.write()
      earliest = math.min(earliest, own.earliest)
    end
    return any
  end
end
