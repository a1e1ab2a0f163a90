-- Redis keeps a sorted set of few and short members as a list, by default up to 128 members of 64 bytes, and goes through
-- that list for each member that it adds, finds or removes. With 100 leases in a list the leases cost the server seven times
-- what they cost in a table. Redis makes no list of a table again while the set has members. So a script that gives a set its
-- FEWth member also adds a member that is too long for a list, and removes it at once. Smaller sets stay lists, because a list
-- is quicker for a few members. A table takes some 90 bytes more for a member. So messages that wait for longer than NEAR stay
-- in a list, as many topics may have a few of them for a long time.
local large = {FEW = 8} -- one local variable, because a script may have 200
do
  local LONG_MEMBER = 'This member is longer than Redis lets those of a list be, and no ID,\nbecause it has two lines.'

  -- becomes reports whether more members give a set that has so many before its FEWth one.
  function large.becomes(before, more) return before < large.FEW and before + more >= large.FEW end

  -- add adds members, given as score, member, score, member ..., to a set of which becomes has said so. The long member
  -- comes first, because Redis takes the kind of a new set from its first member.
  function large.add(set, members)
    local n = #members
    members[n + 1], members[n + 2] = members[1], members[2]
    members[2] = LONG_MEMBER
    call('ZADD', set, unpack(members))
    call('ZREM', set, LONG_MEMBER)
  end
end
