-- rights tries every command that the scripts use, without changing anything. It has no prelude.
--
-- KEYS  a key of the store and one that is never there, because some proxies let no script pass
--       without keys; none on a cluster, where each node is asked
-- ARGV  1 a key that is never there, 2 a channel that nobody subscribes to
-- Reply {command, what the server said, command, what it said ...} of those that this user
--       may not run; none for a user who may run all
--
-- The server looks at the user's rights before it looks at arguments, keys and slots. So a command
-- that could write is given nothing to find, or arguments that it refuses by itself.
local NONE = ARGV[1]
local tries = {
  {'HDEL', NONE, 'f'}, {'HEXISTS', NONE, 'f'}, {'HGET', NONE, 'f'}, {'HGETALL', NONE}, {'HKEYS', NONE}, {'HLEN', NONE}, {'HMGET', NONE, 'f'},
  {'HSCAN', NONE, '0'}, {'HSTRLEN', NONE, 'f'}, {'HSET', NONE, 'f', 'v', 'no value for this one'},
  {'ZADD', NONE, 'NX', 'XX', '0', 'm'}, {'ZCARD', NONE}, {'ZCOUNT', NONE, '0', '0'}, {'ZMSCORE', NONE, 'm'},
  {'ZRANGE', NONE, '0', '0'}, {'ZRANGEBYSCORE', NONE, '0', '0'}, {'ZREM', NONE, 'm'}, {'ZSCORE', NONE, 'm'},
  {'ZREMRANGEBYRANK', NONE, '0', '0'}, {'ZLEXCOUNT', NONE, '-', '+'}, {'ZRANGEBYLEX', NONE, '-', '+'}, {'PEXPIRE', NONE, '1'}, {'PERSIST', NONE},
  {'UNLINK', NONE}, {'TIME'}, {'PUBLISH', ARGV[2], ''},
}
local out = {}
local function try(words)
  local got = redis.pcall(unpack(words))
  local text = type(got) == 'table' and got.err
  if text and (string.find(text, 'NOPERM', 1, true) or string.find(text, 'ACL failure', 1, true)
      or string.find(text, 'The user executing the script', 1, true)) then
    out[#out + 1] = words[1]
    out[#out + 1] = text
  end
end
for _, words in ipairs(tries) do try(words) end
return out
