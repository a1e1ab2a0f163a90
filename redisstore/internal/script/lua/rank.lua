-- Places in sorted sets, for the scripts that go through a set in pieces. This file comes after
-- prelude.lua.

local function exactly(score) return string.format('%.17g', score) end

-- rank_behind returns the rank of the first member of a set after the place of a score and an ID.
-- Backwards it is that of the first member at the place or after it, so that the members before it
-- are those that come next.
local function rank_behind(key, at, id, backwards)
  local low = call('ZCOUNT', key, '-inf', '(' .. exactly(at))
  local high = call('ZCOUNT', key, '-inf', exactly(at))
  while low < high do
    local mid = math.floor((low + high) / 2)
    local member = call('ZRANGE', key, mid, mid)[1]
    if before(id, member) or backwards and id == member then high = mid else low = mid + 1 end
  end
  return low
end
