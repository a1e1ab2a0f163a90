-- The tables of version 1. docs/format-postgres.md draws the tables as they are now.
-- Locks: it makes new things only, so nobody waits for it.

-- One row that says which store this is.
CREATE TABLE punctual.store (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    identity uuid    NOT NULL DEFAULT gen_random_uuid(), -- another one is another store
    epoch    integer NOT NULL DEFAULT 1, -- rises when the server's timeline changes, as at a promotion
    timeline text    NOT NULL, -- that of the epoch
    clock    bigint  NOT NULL DEFAULT 0 -- the store's clock was at least here, in microseconds
);
INSERT INTO punctual.store (timeline) VALUES (substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8));

-- Numbers the claims. The upper bits of a token are the epoch, the lowest are random.
CREATE SEQUENCE punctual.claim_number AS bigint MAXVALUE 1099511627775 NO CYCLE;

-- Times and lengths are in milliseconds.
CREATE TABLE punctual.topic (
    number          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text COLLATE "C" NOT NULL UNIQUE,
    settings        text    NOT NULL, -- as JSON; the columns below repeat what statements need
    lease           bigint  NOT NULL,
    max_attempts    integer NOT NULL,
    dedupe_window   bigint  NOT NULL,
    dead_retention  bigint  NOT NULL,
    push_paused     boolean NOT NULL,
    delivery_paused boolean NOT NULL
);

-- Deleted topics whose rows are still to be removed.
CREATE TABLE punctual.dropped_topic (
    number integer PRIMARY KEY
);

-- A row is a live message (visible_at is set), a dead one (died_at) or the ID of a finished one that is
-- remembered (forget_at). All three are in one table, so that one index decides who has an ID.
CREATE TABLE punctual.message (
    visible_at   bigint, -- when it next needs attention: its due time, or the end of its lease
    due          bigint  NOT NULL,
    first_due    bigint  NOT NULL,
    created      bigint  NOT NULL,
    token        bigint  NOT NULL DEFAULT 0, -- of the current lease, also when that has run out; 0: none
    topic        integer NOT NULL,
    attempts     integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 0, -- 0: as the topic says
    cancelled    boolean NOT NULL DEFAULT false, -- no attempt follows the one under way
    drop_expired boolean NOT NULL DEFAULT false,
    id           text COLLATE "C" NOT NULL,
    expire_after bigint, -- from first_due
    expires      bigint,
    died_at      bigint,
    reason       text,
    forget_at    bigint,
    headers      bytea,
    body         bytea,
    failures     bytea[], -- oldest first, at most 16, each "ATTEMPT TIME TEXT"
    PRIMARY KEY (topic, id)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX message_visible ON punctual.message (topic, visible_at, id) WHERE visible_at IS NOT NULL;
CREATE INDEX message_died ON punctual.message (topic, died_at, id) WHERE died_at IS NOT NULL;
CREATE INDEX message_reason ON punctual.message (topic, reason, died_at, id) WHERE died_at IS NOT NULL;
CREATE INDEX message_forget ON punctual.message (topic, forget_at) WHERE forget_at IS NOT NULL;
