-- Whether the key k has as many leases as it may. Included in others as :key_full:. It locks
-- nothing.
k.key_leases > 0 AND (SELECT count(*) FROM (
    SELECT 1 FROM punctual.message AS m
    WHERE m.topic = k.topic AND m.key = k.key AND m.place >= :held_place: LIMIT k.key_leases
) AS m) >= k.key_leases
