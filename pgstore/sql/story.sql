-- What becomes of a story when another one takes its place. Included in others as :story:.
outcome = excluded.outcome, ended_at = excluded.ended_at, forget_at = excluded.forget_at, created = excluded.created,
first_due = excluded.first_due, due = excluded.due, leased_at = excluded.leased_at, attempts = excluded.attempts, failures = excluded.failures
