-- Ends the staging of messages that the store has.
--
-- KEYS  1 staging hash; asynq, bullmq: for each item where the task's hash is kept
-- ARGV  1 kind, then for each item: member, record
-- Result: how many were ended; those that another run has adopted are left to it.
local n = 0
for i = 1, (#ARGV - 1) / 2 do
  local member, record = ARGV[2 * i], ARGV[2 * i + 1]
  if redis.call('HGET', KEYS[1], member) == record then
    redis.call('HDEL', KEYS[1], member)
    if KEYS[i + 1] then
      redis.call('DEL', KEYS[i + 1])
    end
    n = n + 1
  end
end
return n
