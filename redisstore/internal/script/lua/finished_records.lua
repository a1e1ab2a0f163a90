-- Writes and deletes finished records: what a topic with a finished_retention keeps of each message
-- that was acked, cancelled or dropped. This file follows start.lua, and comes before the fast path
-- in the script settle. Where no keys of finished records are given it makes no functions, so that
-- it costs next to nothing. docs/format-redis.md draws the format.

local ACKED, CANCELLED, DROPPED = 0, 1, 2 -- outcomes
local FINISHED, FINISHED_VERSION, FINISHED_BYTES = '<BI6I5I6i7', 32, 25
local DELIVERED, MOVED_ONCE, ATTEMPTS = 4, 8, 16 -- flags beside the outcome
local put_finished, ids_of, finished_until, sweep_finished -- nil unless the caller gave the keys h and u
if H then
  local byte, char, sub = string.byte, string.char, string.sub
  -- ENDS is how many IDs a member of u has at most, because a member of its own for each ID would
  -- take more memory.
  local ENDS = 32

  -- put_finished writes finished records, given as ID, record, ID, record ...; ids are the same
  -- IDs. A command that removes must come before it: see make_room.
  put_finished = function(ids, finished, retention)
    call('HSET', H, unpack(finished))
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

  -- ids_of appends the IDs in a member of u to ids, and reports whether the member can be read.
  ids_of = function(member, ids)
    local at = 1
    while at <= #member do
      local n = byte(member, at)
      ids[#ids + 1] = sub(member, at + 1, at + n)
      at = at + 1 + n
    end
    return at == #member + 1
  end

  -- finished_until returns the time at which a finished record is past its retention, or nil if it
  -- cannot be read.
  finished_until = function(raw)
    if #raw < FINISHED_BYTES or floor(byte(raw) / FINISHED_VERSION) ~= 1 then return nil end
    local _, at, kept_for = unpack_from(FINISHED, raw)
    return at + kept_for
  end

  -- SWEEP_RECORDS and SWEEP_BYTES bound the finished records that one script deletes. SWEEP_RECORDS
  -- is more than a script can add, so that records past their retention do not pile up.
  local SWEEP_RECORDS, SWEEP_BYTES, SOME_ENDS = 256, 262144, 16

  -- delete_past deletes the finished records of some IDs that are past their retention, and returns
  -- how many bytes it has read. It checks each record, because an ID may have finished again and
  -- then has a later record, which stays.
  local function delete_past(ids)
    local over, bytes = {}, 0
    for i, raw in ipairs(call('HMGET', H, unpack(ids))) do
      bytes = bytes + #(raw or '')
      if raw and (finished_until(raw) or NEVER) <= now then over[#over + 1] = ids[i] end
    end
    if #over > 0 then call('HDEL', H, unpack(over)) end
    return bytes
  end

  -- sweep_finished deletes some finished records that are past their retention, and reports whether
  -- there were any.
  sweep_finished = function()
    local n, bytes = 0, 0
    while n < SWEEP_RECORDS and bytes < SWEEP_BYTES do
      local ends, first, ids = call('ZRANGEBYSCORE', U, '-inf', now_text, 'LIMIT', 0, SOME_ENDS), 1, {}
      if #ends == 0 then break end
      for i, member in ipairs(ends) do
        ids_of(member, ids)
        if #ids >= ENDS or i == #ends then
          bytes = bytes + delete_past(ids)
          call('ZREM', U, unpack(ends, first, i))
          n, first, ids = n + #ids, i + 1, {}
          if bytes >= SWEEP_BYTES then break end
        end
      end
    end
    -- A topic that keeps none any more loses the field with its last record. From then on callers
    -- need not give h and u.
    if g[10] == '0' and call('ZCARD', U) == 0 then call('HDEL', G, 'finished_retention') end
    return n > 0
  end
end
