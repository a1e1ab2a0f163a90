-- Whether no claim would come to look at a key, of which look.sql says l, when its turn comes: an
-- error in the program, since nothing else does that. Included in others as :lost:. It locks
-- nothing.
l.turn IS NOT NULL AND coalesce(l.at > greatest(l.turn, l.now) + 1000, true) AND (SELECT c.carried FROM punctual.clock_step AS c)
