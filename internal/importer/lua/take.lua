-- Takes messages out of another system's sorted set into the staging hash, where no consumer
-- of either system sees them. Nothing is taken that is not exactly as it was when it was read.
--
-- KEYS  1 sorted set, 2 staging hash
--       beedelayqueue: 3 the lock that its consumers hold while they read and remove
--       redisson:      3 its list, which holds every member a second time
--       asynq:         two for each item: the task's hash, and where it is kept meanwhile
-- ARGV  1 kind, then for each item: member, score, record, SHA-1 of the task (asynq, else "")
-- Result: for each item 1 taken (also by an earlier try of the same call), 0 gone, 2 changed,
-- 3 still staged from before. While the lock is held it is a single -1.
local kind, set, staging = ARGV[1], KEYS[1], KEYS[2]

local function expect(key, want)
  local is = redis.call('TYPE', key).ok
  if is ~= want and is ~= 'none' then
    return redis.error_reply('PUNCTUAL_TYPE ' .. key .. ' is a ' .. is .. ', not a ' .. want)
  end
end

local wrong = expect(set, 'zset') or expect(staging, 'hash') or kind == 'redisson' and expect(KEYS[3], 'list')
if wrong then
  return wrong
end
if kind == 'beedelayqueue' and redis.call('EXISTS', KEYS[3]) == 1 then
  return { -1 }
end

local out = {}
for i = 1, (#ARGV - 1) / 4 do
  local member, score, record, sum = ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1]
  local held, is = redis.call('HGET', staging, member), redis.call('ZSCORE', set, member)
  local task, kept = KEYS[2 * i + 1], KEYS[2 * i + 2]
  if held then
    out[i] = held == record and 1 or 3
  elseif not is then
    out[i] = 0
  elseif tonumber(is) ~= tonumber(score) then
    out[i] = 2
  elseif kind == 'asynq' and redis.sha1hex(redis.call('HGET', task, 'msg') or '') ~= sum then
    out[i] = 2
  else
    redis.call('HSET', staging, member, record) -- first, because it is what a full server refuses
    redis.call('ZREM', set, member)
    if kind == 'redisson' then
      redis.call('LREM', KEYS[3], 1, member)
    elseif kind == 'asynq' then
      redis.call('RENAME', task, kept)
    end
    out[i] = 1
  end
end
return out
