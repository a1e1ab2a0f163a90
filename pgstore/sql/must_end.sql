-- Whether a claim must end message m in the place of leasing it: the condition of
-- lifecycle.MustEnd. t has the topic and the time.
m.cancelled OR m.attempts >= coalesce(nullif(m.max_attempts, 0), (SELECT max_attempts FROM t))
    OR coalesce(m.expires <= (SELECT now FROM t), false)
