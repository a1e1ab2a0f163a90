-- Puts staged messages back where they were taken from, as they were.
--
-- KEYS  1 sorted set or list, 2 staging hash; redisson: 3 its list;
--       asynq, bullmq: two for each item: the task's hash, and where it is kept
-- ARGV  1 kind, 2 the type of the first key, then for each item: member, score, record
-- Result: for each item 1 back (also by an earlier try of the same call), 0 gone, 2 its place is
-- taken. Gone means that another run has adopted or finished the message. Its place is taken when
-- there is a new task with the same ID. For the kinds without tasks a member that was added again
-- meanwhile stays as it is there: the newer one counts, as it always does in a sorted set.
local kind, set, staging = ARGV[1], KEYS[1], KEYS[2]
local tasks, isList = kind == 'asynq' or kind == 'bullmq', ARGV[2] == 'list'
local out = {}
for i = 1, (#ARGV - 2) / 3 do
  local member, score, record = ARGV[3 * i], ARGV[3 * i + 1], ARGV[3 * i + 2]
  local task, kept = KEYS[2 * i + 1], KEYS[2 * i + 2]
  local held, there = redis.call('HGET', staging, member), nil
  if isList then
    there = (tasks and redis.call('EXISTS', task) == 1 or not tasks and redis.call('LPOS', set, member)) and score
  else
    there = redis.call('ZSCORE', set, member)
  end
  if held ~= record then
    out[i] = (not held and there and tonumber(there) == tonumber(score)) and 1 or 0
  elseif tasks and (there or redis.call('EXISTS', task) == 1) then
    out[i] = 2
  else
    redis.call('HDEL', staging, member) -- first: a full server refuses additions, but not after a removal
    if tasks then
      redis.call('RENAME', kept, task)
    end
    if isList then
      redis.call('RPUSH', set, member) -- where a worker takes it next, because it had waited already
    elseif not there then
      redis.call('ZADD', set, score, member)
    end
    if not there and kind == 'redisson' then
      redis.call('RPUSH', KEYS[3], member)
    end
    out[i] = 1
  end
end
return out
