-- Waits until no claim is under way, and keeps claims from beginning until the transaction ends. A
-- claim that went by the time before the step could otherwise take a lease that was given after it
-- (P3).
-- Locks: the table clock_step against claims, and not against those who only read it, such as a
-- dump.
LOCK TABLE punctual.clock_step IN EXCLUSIVE MODE
