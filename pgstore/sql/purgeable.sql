-- Whether purge_live.sql is to remove a message m: it is live, was not stored after time $8 (one
-- that was created in the future was stored before the clock stepped back), and by the times that
-- it has now it is in state $5
-- (0: in any) at time $8, at a place in the list of that state from $6, before $7. Included there
-- as :purgeable:. It locks nothing.
num_nonnulls(m.visible_at) = 1 AND NOT (m.created > $8::bigint AND m.created <= (SELECT micros / 1000 FROM clock))
AND $5::integer IN (0, CASE WHEN m.visible_at <= $8::bigint THEN 2 WHEN m.token = 0 THEN 1 ELSE 3 END)
AND CASE WHEN m.visible_at <= $8::bigint THEN m.due ELSE m.visible_at END >= $6::bigint
AND CASE WHEN m.visible_at <= $8::bigint THEN m.due ELSE m.visible_at END < $7::bigint
