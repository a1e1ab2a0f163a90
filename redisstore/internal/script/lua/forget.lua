-- forget takes back one answer to a claim with a key, because that answer did not reach its caller.
--
-- KEYS  1, 2 the hashes of records
-- ARGV  1 the field of the record
-- Reply 1 if no other copy of the claim got the answer. Then forget has deleted the record, and the
--       caller has to give the leases back
for i = 1, 2 do
  local raw = redis.call('HGET', KEYS[i], ARGV[1])
  if raw then
    local record = cmsgpack.unpack(string.sub(raw, 9))
    record.given = record.given - 1
    if record.given == 0 then
      redis.call('HDEL', KEYS[i], ARGV[1])
      return 1
    end
    redis.call('HDEL', KEYS[i], '-') -- a server out of memory refuses a script that begins with an addition
    redis.call('HSET', KEYS[i], ARGV[1], string.sub(raw, 1, 8) .. cmsgpack.pack(record))
    return 0
  end
end
return 0
