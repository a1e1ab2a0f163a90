-- Has the server cancel each later statement of the transaction that takes longer than $1 ms,
-- unless the session allows it less. It locks nothing.
SELECT CASE WHEN s.allowed = interval '0' OR s.allowed > $1::bigint * interval '1 millisecond' THEN set_config('statement_timeout', $1::bigint::text, true) END
FROM (SELECT current_setting('statement_timeout')::interval AS allowed) AS s
