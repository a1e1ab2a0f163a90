-- Writes down how far the store's clock was, for other processes and later ones, unless the clock
-- has stepped since step $2.
-- Locks: the only row of the table store, if the clock there is earlier.
UPDATE punctual.store SET clock = $1::bigint WHERE clock < $1::bigint AND steps = $2::bigint
