-- The tables of version 2: stories of finished messages, and when the last lease of a message began.
-- Locks: topic and message, for a moment, since no row is written. It waits for transactions under way, and others wait behind it.

ALTER TABLE punctual.topic ADD COLUMN finished_retention bigint NOT NULL DEFAULT 0; -- how long stories are kept; 0: not at all

ALTER TABLE punctual.message ADD COLUMN leased_at bigint; -- when the lease of the token began; unknown of a claim by version 1

-- What is told of a message that was acked, cancelled or dropped, as long as its topic asks. It does not hold the ID.
CREATE TABLE punctual.story (
    created   bigint  NOT NULL,
    first_due bigint  NOT NULL,
    due       bigint  NOT NULL,
    leased_at bigint, -- when its last lease began, if it was not given back
    ended_at  bigint  NOT NULL,
    forget_at bigint  NOT NULL,
    topic     integer NOT NULL,
    attempts  integer NOT NULL,
    outcome   text    NOT NULL, -- acked, cancelled or expired
    id        text COLLATE "C" NOT NULL,
    failures  bytea[], -- as those of the message
    PRIMARY KEY (topic, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05
);
-- Its condition, which all stories meet, keeps look-ups by ID from it.
CREATE INDEX story_forget ON punctual.story (topic, forget_at) WHERE forget_at > 0;
