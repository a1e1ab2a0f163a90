-- Begins a new epoch if the server is not that of the epoch, or in another timeline, as after a
-- promotion.
-- Locks: the only row of the table store. Processes that notice this at the same time wait for each
-- other, and only the first of them begins an epoch.
UPDATE punctual.store SET epoch = epoch + 1, timeline = split_part(:line:, '/', 1), system = split_part(:line:, '/', 2)
WHERE timeline || '/' || system <> :line:
