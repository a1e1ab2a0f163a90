-- Where a topic tells of what happens to its messages (Settings.Emit), a script adds a message for
-- each event to the companion events, in the same step. This file comes after start.lua, and in the
-- script settle after follow_topics.lua.
--
-- KEYS  the last eight that are none of start.lua: t to x, as in start.lua, of the same partition
--       of the companion events; behind them, in a topic with keys, q to i, as in keyed.lua. A
--       caller gives them only after it has learned from an error that the topic tells of events
--
-- A source is a topic that tells of events: {on, keep, topic, home}. on is of which events, as in
-- punctual.Events; keep is how long an event is kept; topic is its name; home is the stem of the
-- IDs of its events, whose home is this partition.
if g[11] and g[11] ~= '0' or follow_topics then -- most topics tell of nothing, and this test is all that their scripts do for it
  local source_of = function(t, on, keep, home)
    if not on or on == '0' then return nil end
    local parent, companion = string.match(t, '{(.-)#%d+}(.-):t$')
    return {on = whole(on, 'emit'), keep = whole(keep, 'emit_keep'), topic = parent .. companion, home = home}
  end
  local own, any = nil, false
  if g[11] and g[11] ~= '0' then
    local more = call('HMGET', G, 'emit_keep', 'event_home')
    own, any = source_of(T, g[11], more[1], more[2]), true
  end
  for _, p in ipairs(follow_topics or {}) do
    p.source = source_of(p.t, p.emit, p.emit_keep, p.event_home)
    any = any or p.source ~= nil
  end
  if any then
    local last, each = keyed.last, follow_topics and follow_topics.each or 8
    local heads = string.byte(KEYS[last], -1) == 105 and last - 4 -- the place of q
    if heads then last = heads - 1 end
    if last - 10 - each * #(follow_topics or {}) < 8 or keyed.names and not heads then
      return redis.error_reply('PUNCTUAL_EVENTS the topic tells of events: give the keys of these, too')
    end
    local t, l, m, of = KEYS[last - 7], KEYS[last - 6], KEYS[last - 3], KEYS[last - 1]
    local got = call('HMGET', of, 'version', 'lease', 'token', 'clock', 'stepped', 'push_paused')
    local function number_of(i, name) return got[i] and whole(got[i], name, of) or 0 end
    local token, partition = number_of(3, 'token'), g[3] and whole(g[3], 'token') % TOKEN_STEP or 0
    local its_era, its_shift, under_way = steps.of(got[5], got[4], of)
    if under_way or its_era < era then return redis.error_reply('PUNCTUAL_STEP ' .. int(its_era) .. ' ' .. of) end
    steps.latest = math.max(steps.latest, its_era)
    if its_era == era then
      set_forward(number_of(4, 'clock'))
      now_text = int(now)
    end
    local records, times, size = {}, {}, 0
    events = {
      own = own, is_there = got[2], t = t, l = l, m = m,
      ACKED = 1, DEAD = 2, CANCELLED = 4, EXPIRED = 8, PUSHED = 16, RETRIED = 32, -- as punctual.Events
    }
    local NAMES = {'acked', 'dead', [4] = 'cancelled', [8] = 'expired', [16] = 'pushed', [32] = 'retried'}

    -- tells reports whether a source, which may be nil, tells of an event.
    function events.tells(source, event) return source and floor(source.on / event) % 2 == 1 end

    -- lacks reports whether a source tells of an event and the companion is not there.
    function events.lacks(source, event) return not events.is_there and events.tells(source, event) end

    -- absent is the error of a script that has an event to add while the companion is not there. It
    -- has done nothing; the caller makes the companion and sends the call again.
    function events.absent() return redis.error_reply('PUNCTUAL_TELLS ' .. int(-number_of(1, 'version'))) end

    -- tell notes an event, which write stores. delivered is when the last lease began, or false or
    -- nil if there was none or that is not known.
    function events.tell(source, event, id, attempt, created, first, due, delivered, reason)
      if not events.tells(source, event) then return end
      -- The number in the ID of an event comes from the companion's counter of tokens. As with the
      -- tokens of leases, it is raised to the time, so that no number is given again when a
      -- failover forgets some.
      if size == 0 and now + its_shift < LAST_TOKEN_TIME then token = math.max(token, 8 * (now + its_shift) * TOKEN_STEP + partition) end
      token = token + TOKEN_STEP
      local DROP_AND_EXPIRES = 5
      local body = '{"event":"' .. NAMES[event] .. '","topic":"' .. source.topic .. '","id":"' .. string.gsub(id, '["\\]', '\\%0')
        .. (reason and '","reason":"' .. reason or '') .. '","attempt":' .. int(attempt) .. ',"at":' .. now_text
        .. ',"created":' .. int(created) .. ',"first_due":' .. int(first) .. ',"due":' .. int(due)
        .. (delivered and ',"delivered":' .. int(delivered) or '') .. '}'
      local n = 2 * size + 1
      size = size + 1
      records[n] = source.home .. '~' .. string.format('%016x', token)
      records[n + 1] = pack('<BddI4dB', PLAIN + DROP_AND_EXPIRES, now, now, 0, source.keep, 0) .. body
      times[n], times[n + 1] = now_text, records[n]
    end

    -- ended notes the event of a message that finishes; outcome is as in finished_records.lua.
    local OF_OUTCOME = {[0] = events.ACKED, events.CANCELLED, events.EXPIRED}
    function events.ended(id, st, outcome)
      events.tell(own, OF_OUTCOME[outcome], id, st.attempt, st.created, st.first, st.due, st.token ~= 0 and st.began)
    end

    -- died notes the event of a message that becomes dead; its state st still has the token of the
    -- last lease.
    local REASONS = {'discarded', 'attempts used up', 'expired'}
    function events.died(id, st, reason)
      events.tell(own, events.DEAD, id, st.attempt, st.created, st.first, st.due, st.token ~= 0 and st.began, REASONS[reason])
    end

    -- noted returns how many events have been noted.
    function events.noted() return size end

    -- write stores the events. It comes after the changes of the script, as the clock does: see
    -- settle_clock.
    function events.write()
      if size == 0 then return end
      local q = (got[6] == '2' or got[6] == '3') and KEYS[heads]
      local first = call('ZRANGE', q or t, 0, 0, 'WITHSCORES')[2]
      call('HSET', m, unpack(records))
      call('ZADD', t, unpack(times))
      if q then call('ZADD', q, unpack(times)) end
      call('HSET', of, 'token', int(token), 'clock', now_text)
      local lease = call('ZRANGE', l, 0, 0, 'WITHSCORES')[2]
      if (not first or tonumber(first) > now) and (not lease or ceil(lease) > now) then
        -- A process ignores notifications that name it as the sender. This one names nobody, so
        -- that the calling process hears of it, too.
        redis.pcall('PUBLISH', string.sub(t, 1, -2) .. 'notify', '* ' .. now_text)
      end
      records, times, size = {}, {}, 0
    end
  end
end
