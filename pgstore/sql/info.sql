-- The columns of a message m that a Get or a List shows. Included in others as :info:.
m.id, m.due, m.first_due, m.created, m.expires, m.drop_expired, m.attempts, m.max_attempts, m.headers, m.body, m.failures,
m.visible_at, m.token, m.cancelled, m.died_at, m.reason, m.attributes, :waits:
