-- The steps of the store's clock, since when a message waits, and the server of the epoch: version 7.
-- Locks: store and message, for a moment, since one row is written. It waits for transactions under way, and others wait behind it.

-- One row, which changes only when the clock steps back, so that every statement may read it beside a snapshot that is held for long. A
-- claim locks the table so that no step comes while the claim is under way.
CREATE TABLE punctual.clock_step (
    steps     bigint  NOT NULL, -- how often the clock has stepped
    step_from bigint  NOT NULL, -- the last step, in microseconds
    step_to   bigint  NOT NULL,
    carried   boolean NOT NULL, -- all messages have been carried over the last step
    one       boolean PRIMARY KEY DEFAULT true CHECK (one) -- a publication refuses changes of a table that has no key
);
INSERT INTO punctual.clock_step VALUES (0, 0, 0, true);

ALTER TABLE punctual.store ADD COLUMN steps bigint NOT NULL DEFAULT 0; -- the steps that the column clock knows of

ALTER TABLE punctual.message ADD COLUMN since bigint; -- lifecycle.Message.Since; NULL: 0

ALTER TABLE punctual.store ADD COLUMN system text; -- the server's system identifier in the epoch; NULL: not known
UPDATE punctual.store SET system = (SELECT system_identifier FROM pg_control_system());
