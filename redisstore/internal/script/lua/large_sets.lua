-- Redis keeps a sorted set of few and short members as a list, by default up to 128 members of 64
-- bytes, and goes through that list for each member that it adds, finds or removes. With 100 leases
-- in a list the leases cost the server seven times what they cost in a table. Redis makes no list
-- of a table again while the set has members. So a claim that gives l its FEWth member also adds a
-- member that is too long for a list, and removes it at once. So does a script whose new messages
-- give t its FEWth member, if one of them is due within NEAR; push_fast.lua does so only for FEW
-- messages or more. Smaller sets stay lists, because a list is quicker for a few members. A table
-- takes some 90 bytes more for a member, and many topics may have a few messages that wait for a
-- long time, so new messages that are all due later than NEAR leave t as it is.
local large = {FEW = 8} -- one local variable, because a script may have 200
do
  local LONG_MEMBER = 'This member is longer than Redis lets those of a list be, and no ID,\nbecause it has two lines.'

  -- becomes reports whether a set gets its FEWth member when so many more are added to the members
  -- that it had before.
  function large.becomes(before, more) return before < large.FEW and before + more >= large.FEW end

  -- add adds members, given as score, member, score, member ..., to a set that gets its FEWth
  -- member by them. The long member comes first, because Redis takes the kind of a new set from its
  -- first member.
  function large.add(set, members)
    local n = #members
    members[n + 1], members[n + 2] = members[1], members[2]
    members[2] = LONG_MEMBER
    call('ZADD', set, unpack(members))
    call('ZREM', set, LONG_MEMBER)
  end
end
