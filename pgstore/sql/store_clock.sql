-- Keeps how far the store's clock was, for other processes and later ones.
-- Locks: the only row of store, if its clock is earlier.
UPDATE punctual.store SET clock = $1::bigint WHERE clock < $1::bigint
