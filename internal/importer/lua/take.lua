-- Takes messages out of another system's sorted set or list into the staging hash, where no
-- consumer of either system sees them. Nothing is taken that is not exactly as it was when it was
-- read.
--
-- KEYS  1 sorted set or list, 2 staging hash
--       beedelayqueue: 3 the lock that its consumers hold while they read and remove
--       redisson:      3 its list, which holds every member a second time
--       asynq, bullmq: two for each item: the task's hash, and where it is kept meanwhile
-- ARGV  1 kind, 2 the type of the first key, 3 how many fields of a task's hash are compared, then
--       their names; then for each item: member, score, record, SHA-1 of those fields (else "")
-- Result: for each item 1 taken (also by an earlier try of the same call), 0 gone, 2 changed,
-- 3 still staged from before. While the lock is held it is a single -1.
local kind, set, staging, fields = ARGV[1], KEYS[1], KEYS[2], {}
for i = 1, tonumber(ARGV[3]) do
  fields[i] = ARGV[3 + i]
end

local function expect(key, want)
  local is = redis.call('TYPE', key).ok
  if is ~= want and is ~= 'none' then
    return redis.error_reply('PUNCTUAL_TYPE ' .. key .. ' is a ' .. is .. ', not a ' .. want)
  end
end

local wrong = expect(set, ARGV[2]) or expect(staging, 'hash') or kind == 'redisson' and expect(KEYS[3], 'list')
if wrong then
  return wrong
end
if kind == 'beedelayqueue' and redis.call('EXISTS', KEYS[3]) == 1 then
  return { -1 }
end

local function sumOf(task)
  local values = redis.call('HMGET', task, unpack(fields))
  for i = 1, #fields do
    values[i] = values[i] or ''
  end
  return redis.sha1hex(table.concat(values, '\0'))
end

local out, from = {}, 3 + #fields
for i = 1, (#ARGV - from) / 4 do
  local at = from + 4 * i
  local member, score, record, sum = ARGV[at - 3], ARGV[at - 2], ARGV[at - 1], ARGV[at]
  local held = redis.call('HGET', staging, member)
  local is = ARGV[2] == 'list' and score or redis.call('ZSCORE', set, member)
  local task, kept = KEYS[2 * i + 1], KEYS[2 * i + 2]
  if held then
    out[i] = held == record and 1 or 3
  elseif not is then
    out[i] = 0
  elseif tonumber(is) ~= tonumber(score) then
    out[i] = 2
  elseif sum ~= '' and sumOf(task) ~= sum then
    out[i] = 2
  else
    redis.call('HSET', staging, member, record) -- first, because it is what a full server refuses
    local removed
    if ARGV[2] == 'list' then
      removed = redis.call('LREM', set, -1, member)
    else
      removed = redis.call('ZREM', set, member)
    end
    if removed == 0 then
      redis.call('HDEL', staging, member)
    elseif kind == 'redisson' then
      redis.call('LREM', KEYS[3], 1, member)
    elseif sum ~= '' then
      redis.call('RENAME', task, kept)
    end
    if removed == 1 and kind == 'bullmq' then
      -- What BullMQ removes with a job, so that a later one may have its priority or deduplication.
      local queue, deduplication = string.sub(task, 1, #task - #member), redis.call('HGET', kept, 'deid')
      redis.call('ZREM', queue .. 'priority', member)
      if deduplication and redis.call('GET', queue .. 'de:' .. deduplication) == member then
        redis.call('DEL', queue .. 'de:' .. deduplication)
      end
    end
    out[i] = removed
  end
end
return out
