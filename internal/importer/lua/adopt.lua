-- Makes staged messages this run's, so that the run which took them cannot put them back.
--
-- KEYS  1 staging hash
-- ARGV  for each item: member, the record that is there, the record with this run's name
-- Result: for each item 1 adopted, 0 not: it is finished, or another run was faster.
local out = {}
for i = 1, #ARGV / 3 do
  local member, old, new = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local is = redis.call('HGET', KEYS[1], member)
  if is == old then
    redis.call('HDEL', KEYS[1], member) -- first: a full server refuses additions, but not after a removal
    redis.call('HSET', KEYS[1], member, new)
  end
  out[i] = (is == old or is == new) and 1 or 0
end
return out
