-- Reads, in a call with follow-ups, what the partitions of their topics say of themselves. This
-- file follows start.lua directly, because it sets the time forward to the latest that any of these
-- partitions of the same era has seen. One of an earlier era has to step first. If one has a later
-- era, the caller does not know of a step yet, and call.lua refuses the call.
--
-- follow_topics has the topics in the order of KEYS: the names of keys, as an intake takes them;
-- version, as in replies; is_there: whether the topic exists; paused: whether its pushes are; gone,
-- as in prelude.lua; and what events.lua needs of them.
if ARGV[5] then
  local count = tonumber(ARGV[5])
  follow_topics = {each = count < 0 and 13 or 8}
  for n = 1, math.abs(count) do
    local k = 11 + follow_topics.each * (n - 1)
    local t, l, d, f, m, s, of, x = unpack(KEYS, k, k + 7)
    local got = call('HMGET', of, 'version', 'lease', 'clock', 'push_paused', 'gone', 'dead_retention', 'emit', 'emit_keep', 'event_home', 'stepped')
    local function number_of(i, name) return got[i] and whole(got[i], name, of) or nil end
    follow_topics[n] = {
      t = t, l = l, d = d, f = f, m = m, s = s, g = of, x = x,
      is_there = got[2], version = (number_of(1, 'version') or 0) * (got[2] and 1 or -1), paused = got[4] == '1' or got[4] == '3',
      names = count < 0 and (got[4] == '2' or got[4] == '3') and {unpack(KEYS, k + 8, k + 12)},
      gone = number_of(5, 'gone') or -NEVER, dead_retention = number_of(6, 'dead_retention') or 0, emit = got[7], emit_keep = got[8], event_home = got[9],
    }
    local passed, its_era, _, under_way = number_of(3, 'clock'), steps.of(got[10], got[3], of)
    if under_way or its_era < era then return redis.error_reply('PUNCTUAL_STEP ' .. int(its_era) .. ' ' .. of) end
    steps.latest = math.max(steps.latest, its_era)
    if passed and its_era == era then set_forward(passed) end
  end
  now_text = int(now)
  for _, p in ipairs(follow_topics) do
    if p.dead_retention > 0 then p.gone = math.max(p.gone, now - p.dead_retention) end
  end
end
