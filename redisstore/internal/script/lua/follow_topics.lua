-- Reads, in a call with follow-ups, what the partitions of their topics say of themselves. This file follows start.lua directly,
-- because it sets the time forward to the latest that any of these partitions has seen.
--
-- follow_topics has the topics in the order of KEYS: the names of keys, as an intake takes them; version, as in replies; is_there:
-- whether the topic exists; paused: whether its pushes are; gone, as in prelude.lua; and what events.lua needs of them.
if ARGV[5] then
  local KEYS_EACH = 8 -- t to x, as in start.lua
  local has_key = #ARGV[1] > 41 -- of the call, see call.lua
  follow_topics = {}
  for n = 1, ARGV[5] do
    local k = (has_key and 11 or 10) + KEYS_EACH * (n - 1)
    local t, l, d, f, m, s, of, x = unpack(KEYS, k, k + KEYS_EACH - 1)
    local got = call('HMGET', of, 'version', 'lease', 'clock', 'push_paused', 'gone', 'dead_retention', 'emit', 'emit_keep', 'event_home')
    local function number_of(i, name) return got[i] and whole(got[i], name, of) or nil end
    follow_topics[n] = {
      t = t, l = l, d = d, f = f, m = m, s = s, g = of, x = x,
      is_there = got[2], version = (number_of(1, 'version') or 0) * (got[2] and 1 or -1), paused = got[4] == '1',
      gone = number_of(5, 'gone') or -NEVER, dead_retention = number_of(6, 'dead_retention') or 0, emit = got[7], emit_keep = got[8], event_home = got[9],
    }
    local passed = number_of(3, 'clock') or 0
    if passed > now then now, up, micros = passed, passed, 0 end
  end
  now_text = int(now)
  for _, p in ipairs(follow_topics) do
    if p.dead_retention > 0 then p.gone = math.max(p.gone, now - p.dead_retention) end
  end
end
