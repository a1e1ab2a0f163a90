-- The columns of a message m that decide about its next state, and those that its events tell.
-- Included in others as :row:.
m.id, m.topic, m.visible_at, m.due, m.first_due, m.token, m.attempts, m.max_attempts, m.cancelled,
m.drop_expired, m.expire_after, m.died_at, m.reason, m.forget_at, m.remember, m.created, m.leased_at, m.since
