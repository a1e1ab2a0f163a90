-- confirm changes a hash in front of WAITAOF, which waits for what its connection has changed. A
-- script that found its work done already has changed nothing. It has no prelude.
--
-- KEYS  1 a hash
-- ARGV  1 a field without which there is nothing to confirm
-- Reply 1
--
-- The field confirmed is removed before it is set, because a server out of memory refuses a script
-- whose first change is an addition.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HDEL', KEYS[1], 'confirmed')
  redis.call('HSET', KEYS[1], 'confirmed', '1')
end
return 1
