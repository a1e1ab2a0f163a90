-- registry keeps the names of all topics. It has no prelude.
--
-- KEYS  1 topics: set of names
-- ARGV  1 'add', 'remove' or 'list'; 2 the name
-- Reply the names, for 'list'; else how many were added or removed
if ARGV[1] == 'add' then return redis.call('SADD', KEYS[1], ARGV[2]) end
if ARGV[1] == 'remove' then return redis.call('SREM', KEYS[1], ARGV[2]) end
return redis.call('SMEMBERS', KEYS[1])
