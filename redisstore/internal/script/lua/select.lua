-- What list and purge share: the choice of messages by state and time. This file stands between
-- prelude.lua and list.lua or purge.lua.
--
-- ARGV  3 state, as in punctual.State; 0 is all but the dead, for purge alone.
--       4 from, 5 to (ms, both included).
--       6 time, 7 ID of the place after which to begin; both are empty to begin at the first.
--       8 how many at most. A negative number reads the list from its end: the latest first, and
--       after a place comes what stands before it in order.

-- Leases that end in one ms are in the order of their scores, which are multiples of 1/PLACES. So
-- the time in the place of a leased message is its score times PLACES, a whole number.
local PLACES = 1024
local listed_leases = ARGV[3] == '3'
local places = listed_leases and PLACES or 1
local after, after_id = tonumber(ARGV[6]), ARGV[7]
if after then after = after / places end
local most = tonumber(ARGV[8])
local backwards = most < 0
most = math.abs(most)

-- page returns up to n members of a set between two scores, after a place if one is given, as {id,
-- at, from}. Backwards it begins with the last of them.
local function page(key, low, high, after, after_id, n)
  local out = {}
  if low > high then return out end
  local first = call('ZCOUNT', key, '-inf', int(low - 1)) -- a lease that ends at low may have a lower score
  local last = call('ZCOUNT', key, '-inf', int(high)) - 1
  if backwards then
    if after and after <= high then last = rank_behind(key, after, after_id, true) - 1 end
    first = math.max(first, last - n + 1)
  else
    if after and after > low - 1 then first = rank_behind(key, after, after_id) end
    last = math.min(last, first + n - 1)
  end
  if first > last then return out end
  local got = call('ZRANGE', key, int(first), int(last), 'WITHSCORES')
  for i = 1, #got, 2 do out[#out + 1] = {id = got[i], at = tonumber(got[i + 1]), from = key} end
  if backwards then
    for i = 1, math.floor(#out / 2) do out[i], out[#out - i + 1] = out[#out - i + 1], out[i] end
  end
  return out
end

local function in_order(a, b)
  if backwards then a, b = b, a end
  if a.at ~= b.at then return a.at < b.at end
  return before(a.id, b.id)
end

-- ready merges the due messages of the timeline with those whose lease has run out.
local function ready(low, high, after, after_id, n)
  local out, a, b = {}, page(T, low, math.min(high, now), after, after_id, n), page(X, low, high, after, after_id, n)
  local i, j = 1, 1
  while #out < n and (a[i] or b[j]) do
    if a[i] and (not b[j] or in_order(a[i], b[j])) then
      out[#out + 1] = a[i]
      i = i + 1
    else
      out[#out + 1] = {id = b[j].id, at = b[j].at, from = L}
      j = j + 1
    end
  end
  return out
end

-- live returns messages with a lease, also one that has run out, and then those that wait. The
-- given place holds for those that wait alone, because purge, its only user, deletes the others as
-- it goes.
local function live(low, high, after, after_id, n)
  local out = page(L, math.max(low, now + 1), high, nil, '', n)
  for _, e in ipairs(page(X, low, high, nil, '', n - #out)) do out[#out + 1] = {id = e.id, at = e.at, from = L} end
  for _, e in ipairs(page(T, low, high, after, after_id, n - #out)) do out[#out + 1] = e end
  return out
end

-- Ready messages can be chosen only if all leases that have run out are in x.
if ARGV[3] == '0' or ARGV[3] == '2' then
  local _, all = lapsed()
  if not all then return redis.error_reply('PUNCTUAL_MORE leases have run out') end
end

local function choose()
  local state, low, high, n = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), most
  if state == 0 then return live(low, high, after, after_id, n) end
  if state == 1 then return page(T, math.max(low, now + 1), high, after, after_id, n) end
  if state == 2 then return ready(low, high, after, after_id, n) end
  if state == 3 then return page(L, math.max(low, now + 1), high, after, after_id, n) end
  return page(D, math.max(low, gone + 1), high, after, after_id, n)
end
