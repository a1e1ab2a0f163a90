-- Messages of a key that have a lease, also one that has run out, have places from here on: behind
-- all others, and as far from here as their turn came after 1970, in ms. A message without a lease
-- has its due time as its place, or with in_order its first due time. Included in others as
-- :held_place:.
4611686018427387904
