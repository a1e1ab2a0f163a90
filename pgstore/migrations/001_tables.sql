-- The tables of version 1, which docs/format-postgres.md draws.
-- Locks: it makes new things only, so nobody waits for it.

-- One row that says which store this is.
CREATE TABLE punctual.store (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    identity uuid    NOT NULL DEFAULT gen_random_uuid(), -- another one is another store
    epoch    integer NOT NULL DEFAULT 1, -- rises when the server's timeline or identifier changes, as at a promotion
    timeline text    NOT NULL, -- that of the epoch
    system   text    NOT NULL, -- the server's system identifier in the epoch
    clock    bigint  NOT NULL DEFAULT 0, -- the store's clock was at least here, in microseconds
    steps    bigint  NOT NULL DEFAULT 0 -- the steps that the column clock knows of
);
INSERT INTO punctual.store (timeline, system)
SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), system_identifier FROM pg_control_system();

-- The steps of the store's clock. One row, which changes only when the clock steps back, so that
-- every statement may read it beside a snapshot that is held for long. A claim locks the table so
-- that no step comes while the claim is under way.
CREATE TABLE punctual.clock_step (
    steps     bigint  NOT NULL, -- how often the clock has stepped
    step_from bigint  NOT NULL, -- the last step, in microseconds
    step_to   bigint  NOT NULL,
    carried   boolean NOT NULL, -- all messages have been carried over the last step
    one       boolean PRIMARY KEY DEFAULT true CHECK (one) -- a publication refuses changes of a table that has no key
);
INSERT INTO punctual.clock_step VALUES (0, 0, 0, true);

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
    delivery_paused boolean NOT NULL,
    finished_retention bigint NOT NULL DEFAULT 0, -- how long finished records are kept; 0: not at all
    emit            integer NOT NULL DEFAULT 0, -- the bits of punctual.Events
    max_leases      integer NOT NULL DEFAULT 0, -- 0: no bound
    bounded         boolean NOT NULL DEFAULT false, -- claims take effect one after the other, and set message.counted
    keyed           boolean NOT NULL DEFAULT false, -- messages have keys; claims take effect one after the other
    in_order        boolean NOT NULL DEFAULT false,
    key_leases      integer NOT NULL DEFAULT 0, -- of a key at once: 1 if in_order, 0: no bound
    key_gap         bigint  NOT NULL DEFAULT 0, -- between two leases of a key, in microseconds; 0: no rate
    key_at_once     bigint  NOT NULL DEFAULT 1 -- how many leases of a key its rate lets begin at once
);

-- The rates of topics that have one (Settings.MaxRate). It is not in the table topic, because its
-- rows change with each claim.
CREATE TABLE punctual.rate (
    topic   integer PRIMARY KEY,
    gap     bigint  NOT NULL, -- between two leases, in microseconds
    at_once bigint  NOT NULL, -- how many leases may begin at once
    gate    bigint  NOT NULL DEFAULT 0 -- lifecycle.Gate
);

-- Numbers pushes of messages to topics with keys.
CREATE SEQUENCE punctual.arrival AS bigint NO CYCLE;

-- What is known of the keys of messages. Whoever changes a message adds a row for its key, so that
-- nobody waits for anybody else. A claim puts one row, or none, in the place of all rows of a key.
CREATE TABLE punctual.key (
    topic  integer NOT NULL,
    key    text COLLATE "C" NOT NULL,
    number bigint  NOT NULL DEFAULT (random() * 4611686018427387904)::bigint, -- distinguishes the rows of a key
    at     bigint, -- a claim is to look at the key then; NULL: only when another row says so
    opened bigint, -- the turn of no message of the key comes before
    gate   bigint, -- lifecycle.Gate
    PRIMARY KEY (topic, key, number)
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX key_at ON punctual.key (topic, at, number) WHERE at IS NOT NULL;

-- Deleted topics whose rows are still to be removed.
CREATE TABLE punctual.dropped_topic (
    number integer PRIMARY KEY
);

-- A row is a live message (visible_at is set), a dead one (died_at) or the ID of a finished one
-- that is remembered (forget_at). All three are in one table, so that one index decides who has an
-- ID.
CREATE TABLE punctual.message (
    visible_at   bigint, -- when it next needs attention: its due time, or the end of its lease
    due          bigint  NOT NULL,
    first_due    bigint  NOT NULL,
    created      bigint  NOT NULL,
    leased_at    bigint, -- when the lease of the token began
    since        bigint, -- lifecycle.Message.Since; NULL: 0
    token        bigint  NOT NULL DEFAULT 0, -- of the current lease, also when that has run out; 0: none
    topic        integer NOT NULL,
    attempts     integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 0, -- 0: as the topic says
    cancelled    boolean NOT NULL DEFAULT false, -- no attempt follows the one under way
    counted      boolean, -- a lease of it counts for the topic's max_leases; NULL: no lease of it has counted
    drop_expired boolean NOT NULL DEFAULT false,
    id           text COLLATE "C" NOT NULL,
    expire_after bigint, -- from first_due
    expires      bigint,
    died_at      bigint,
    reason       text,
    forget_at    bigint,
    remember     bigint, -- takes the place of the topic's dedupe_window; NULL: as the topic says
    headers      bytea,
    body         bytea,
    attributes   bytea, -- the block of storekit.Attributes, into which no statement looks; NULL: none
    failures     bytea[], -- oldest first, at most 16, each "ATTEMPT TIME TEXT"
    key          text COLLATE "C", -- in a topic with keys: '' of a message without one; NULL in others
    place        bigint, -- of a live message in its key: sql/held_place.sql; NULL in a topic without keys
    arrival      bigint, -- orders those of one place
    PRIMARY KEY (topic, id)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX message_visible ON punctual.message (topic, visible_at, id) WHERE visible_at IS NOT NULL;
CREATE INDEX message_counted ON punctual.message (topic, visible_at, id) WHERE counted AND token <> 0;
CREATE INDEX message_key ON punctual.message (topic, key, place, arrival) WHERE place IS NOT NULL;
CREATE INDEX message_died ON punctual.message (topic, died_at, id) WHERE died_at IS NOT NULL;
CREATE INDEX message_reason ON punctual.message (topic, reason, died_at, id) WHERE died_at IS NOT NULL;
CREATE INDEX message_forget ON punctual.message (topic, forget_at) WHERE forget_at IS NOT NULL;

-- What is told of a message that was acked, cancelled or dropped, as long as its topic asks. It
-- does not hold the ID.
CREATE TABLE punctual.finished (
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
-- Its condition, which all records meet, keeps look-ups by ID from it.
CREATE INDEX finished_forget ON punctual.finished (topic, forget_at) WHERE forget_at > 0;
