-- What list and purge share: the choice of messages by state and time. It stands between
-- the prelude and either script.
--
-- ARGV  4 state (as in punctual.State); 5 from, 6 to (ms, both included); 7, 8 place behind
--       which to begin: time and ID, empty to begin at the first; 9 how many at most

-- rank_behind is the rank of the first member of a set behind a place.
local function rank_behind(key, at, id)
  local low = call('ZCOUNT', key, '-inf', '(' .. int(at))
  local high = call('ZCOUNT', key, '-inf', int(at))
  while low < high do
    local mid = math.floor((low + high) / 2)
    if before(id, call('ZRANGE', key, mid, mid)[1]) then high = mid else low = mid + 1 end
  end
  return low
end

-- page returns up to n members of a set between two scores, behind a place if one is
-- given, as {id, at, from}.
local function page(key, low, high, after, after_id, n)
  local out = {}
  if low > high then return out end
  local first = call('ZCOUNT', key, '-inf', '(' .. int(low))
  if after and after >= low then first = rank_behind(key, after, after_id) end
  local last = math.min(call('ZCOUNT', key, '-inf', int(high)), first + n) - 1
  if first > last then return out end
  local got = call('ZRANGE', key, int(first), int(last), 'WITHSCORES')
  for i = 1, #got, 2 do out[#out + 1] = {id = got[i], at = tonumber(got[i + 1]), from = key} end
  return out
end

-- lapsed returns the messages whose lease has run out, as {id, at: due time, from}.
local function lapsed()
  local ids = call('ZRANGEBYSCORE', L, '-inf', int(now))
  local out = {}
  for first = 1, #ids, 500 do
    local some = {}
    for i = first, math.min(first + 499, #ids) do some[#some + 1] = ids[i] end
    local known = states(some)
    for _, id in ipairs(some) do
      if not known[id] then corrupt('message ' .. id .. ' in ' .. L .. ' has no state') end
      out[#out + 1] = {id = id, at = known[id].due, from = L}
    end
  end
  return out
end

local function in_order(a, b)
  if a.at ~= b.at then return a.at < b.at end
  return before(a.id, b.id)
end

-- ready merges what is due on the timeline with what had a lease that ran out.
local function ready(low, high, after, after_id, n)
  local out = page(T, low, math.min(high, now), after, after_id, n)
  local place = after and {at = after, id = after_id}
  for _, e in ipairs(lapsed()) do
    if e.at >= low and e.at <= high and (not place or in_order(place, e)) then out[#out + 1] = e end
  end
  table.sort(out, in_order)
  for i = #out, n + 1, -1 do out[i] = nil end
  return out
end

local function choose()
  local state, low, high, n = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[9])
  local after, after_id = tonumber(ARGV[7]), ARGV[8]
  if state == 1 then return page(T, math.max(low, now + 1), high, after, after_id, n) end
  if state == 2 then return ready(low, high, after, after_id, n) end
  if state == 3 then return page(L, math.max(low, now + 1), high, after, after_id, n) end
  return page(D, math.max(low, gone + 1), high, after, after_id, n)
end
