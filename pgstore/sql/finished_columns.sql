-- The columns of a finished record that change when a later record with its ID replaces it: all but
-- topic and id. Included in others as :finished_columns:.
outcome = excluded.outcome, ended_at = excluded.ended_at, forget_at = excluded.forget_at, created = excluded.created,
first_due = excluded.first_due, due = excluded.due, leased_at = excluded.leased_at, attempts = excluded.attempts, failures = excluded.failures
