-- The stories of finished messages, for usual cases and for all behind them. It stands behind start.lua. In a topic that keeps none it
-- costs a script next to nothing. The form is drawn in docs/format-redis.md.

local ACKED, CANCELLED, DROPPED = 0, 1, 2 -- outcomes
local STORY, STORY_VERSION, STORY_BYTES = '<BI6I5I6i7', 32, 25
local DELIVERED, MOVED_ONCE, ATTEMPTS = 4, 8, 16 -- flags beside the outcome
local put_stories, ids_of, story_end, sweep_stories -- nil where nobody gave the keys of stories
if H then
  local byte, char, sub = string.byte, string.char, string.sub
  -- ENDS is how many IDs one member of u has at most.
  local ENDS = 32

  -- put_stories writes stories, given as ID, story, ID, story ..., behind something that took out. ids are the same IDs.
  put_stories = function(ids, stories, retention)
    call('HSET', H, unpack(stories))
    local till, ends, length, prefix = int(now + retention), {}, nil, nil
    for first = 1, #ids, ENDS do
      local parts, n = {}, 0
      for i = first, math.min(first + ENDS - 1, #ids) do
        local id = ids[i]
        if #id ~= length then length, prefix = #id, char(#id) end
        parts[n + 1], parts[n + 2] = prefix, id
        n = n + 2
      end
      ends[#ends + 1], ends[#ends + 2] = till, table.concat(parts)
    end
    call('ZADD', U, unpack(ends))
  end

  -- ids_of appends the IDs of a member of u, and reports whether it can be read.
  ids_of = function(member, ids)
    local at = 1
    while at <= #member do
      local n = byte(member, at)
      ids[#ids + 1] = sub(member, at + 1, at + n)
      at = at + 1 + n
    end
    return at == #member + 1
  end

  -- story_end is when a story is forgotten, or nil if it cannot be read.
  story_end = function(raw)
    if #raw < STORY_BYTES or floor(byte(raw) / STORY_VERSION) ~= 1 then return nil end
    local _, at, kept_for = unpack_from(STORY, raw)
    return at + kept_for
  end

  -- STORY_SWEEP is how many stories one script lets go of, more than it can add, and SWEEP_BYTES how long they are in all.
  local STORY_SWEEP, SWEEP_BYTES, SOME_ENDS = 256, 262144, 16

  -- let_go removes those of some stories that were kept long enough, and returns how many bytes it has read. The ID of one may
  -- have a later story by now, which ends at another time.
  local function let_go(ids)
    local over, bytes = {}, 0
    for i, raw in ipairs(call('HMGET', H, unpack(ids))) do
      bytes = bytes + #(raw or '')
      if raw and (story_end(raw) or NEVER) <= now then over[#over + 1] = ids[i] end
    end
    if #over > 0 then call('HDEL', H, unpack(over)) end
    return bytes
  end

  -- sweep_stories lets go of some stories that were kept long enough, and reports whether there were any.
  sweep_stories = function()
    local n, bytes = 0, 0
    while n < STORY_SWEEP and bytes < SWEEP_BYTES do
      local ends, first, ids = call('ZRANGEBYSCORE', U, '-inf', now_text, 'LIMIT', 0, SOME_ENDS), 1, {}
      if #ends == 0 then break end
      for i, member in ipairs(ends) do
        ids_of(member, ids)
        if #ids >= ENDS or i == #ends then
          bytes = bytes + let_go(ids)
          call('ZREM', U, unpack(ends, first, i))
          n, first, ids = n + #ids, i + 1, {}
          if bytes >= SWEEP_BYTES then break end
        end
      end
    end
    -- Who keeps none any more needs no keys when the last one is gone.
    if g[10] == '0' and call('ZCARD', U) == 0 then call('HDEL', G, 'finished_retention') end
    return n > 0
  end
end
