-- A script that adds events also drops some old ones that nobody has taken within the time for which they are kept, so that a
-- companion whose events nobody reads does not grow without end. This file comes after prelude.lua, and does nothing in a script
-- that has no events to tell of.
if events then
  local SWEEP = 64 -- storekit.MaxSweptEvents

  -- is_over reports whether a claim would drop a waiting message.
  local function is_over(id, raw, state, at)
    local st = state and decode_state(id, state) or fresh(id, raw, at)
    local max = st.max > 0 and st.max or events.max_attempts
    return st.drop and expired(st) and st.attempt < max
  end

  -- sweep drops the first waiting messages of the companion, up to the first one that a claim would not drop. It drops as many as
  -- the script adds, which is added, and SWEEP more at most, so that a script never leaves more than it found while there are some to
  -- drop. Where the companion keeps finished records or has kept some, of which this script has no keys, claims and
  -- storekit.SweepEvents alone remove messages.
  function events.sweep(added)
    if events.keeps_finished then return end
    local over, n, most = {}, 1, added + SWEEP -- most often the first one is not over, and there is nothing more to read
    while #over < most do
      local got = call('ZRANGEBYSCORE', events.t, '-inf', now_text, 'WITHSCORES', 'LIMIT', #over, n)
      local ids = {}
      for i = 1, #got, 2 do ids[#ids + 1] = got[i] end
      if #ids == 0 then break end
      local raws, states = call('HMGET', events.m, unpack(ids)), call('HMGET', events.s, unpack(ids))
      local before = #over
      for i, id in ipairs(ids) do
        if not raws[i] or not is_over(id, raws[i], states[i], tonumber(got[2 * i])) then break end
        over[#over + 1] = id
      end
      if #over < before + #ids then break end
      n = most - #over
    end
    if #over == 0 then return end
    call('ZREM', events.t, unpack(over))
    call('HDEL', events.m, unpack(over))
    call('HDEL', events.s, unpack(over))
    if events.window > 0 then
      local times = {}
      for i, id in ipairs(over) do times[2 * i - 1], times[2 * i] = int(now + events.window), id end
      call('ZADD', events.f, unpack(times))
    end
  end
end
