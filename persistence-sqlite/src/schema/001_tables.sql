-- One row per instance. Written by create, then by its owner's checkpoints only.
CREATE TABLE latchwork_instance (
    n              INTEGER PRIMARY KEY,
    revision       INTEGER NOT NULL,
    writer         TEXT,
    status         TEXT    NOT NULL CHECK (status IN ('runnable', 'suspended', 'complete', 'terminated')),
    due            INTEGER,
    fault_count    INTEGER NOT NULL,
    last_sequence  INTEGER NOT NULL,
    reason         TEXT,
    ended          INTEGER,
    id             TEXT    NOT NULL UNIQUE,
    definition     TEXT    NOT NULL,
    version        INTEGER NOT NULL,
    fingerprint    TEXT    NOT NULL,
    business_key   TEXT,
    reference      TEXT,
    parent         TEXT,
    parent_pointer TEXT,
    created        INTEGER NOT NULL
) STRICT;

-- What is due.
CREATE INDEX latchwork_instance_due ON latchwork_instance (due, id) WHERE status = 'runnable' AND due IS NOT NULL;
-- Lists and counts by status.
CREATE INDEX latchwork_instance_status ON latchwork_instance (status, id);
-- Lists by definition.
CREATE INDEX latchwork_instance_definition ON latchwork_instance (definition, id);
-- Whether an open instance has a shape.
CREATE INDEX latchwork_instance_shape ON latchwork_instance (definition, version, fingerprint)
    WHERE status IN ('runnable', 'suspended');
CREATE UNIQUE INDEX latchwork_instance_key ON latchwork_instance (definition, business_key) WHERE business_key IS NOT NULL;
CREATE INDEX latchwork_instance_reference ON latchwork_instance (reference, id) WHERE reference IS NOT NULL;
CREATE INDEX latchwork_instance_parent ON latchwork_instance (parent, id) WHERE parent IS NOT NULL;
-- Those that are stuck.
CREATE INDEX latchwork_instance_faults ON latchwork_instance (id) WHERE fault_count > 0;
-- What can be purged.
CREATE INDEX latchwork_instance_ended ON latchwork_instance (status, ended) WHERE ended IS NOT NULL;

-- The data of an instance, written only when it changed.
CREATE TABLE latchwork_data (
    n    INTEGER PRIMARY KEY,
    data TEXT    NOT NULL
) STRICT;

-- Execution pointers. What the store itself looks at has columns; the rest of a pointer is JSON.
CREATE TABLE latchwork_pointer (
    n        INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    open     INTEGER NOT NULL,
    scope    TEXT,
    record   TEXT    NOT NULL,
    state    TEXT,
    PRIMARY KEY (n, sequence)
) STRICT, WITHOUT ROWID;

-- The open part of an instance, however many pointers are finished.
CREATE INDEX latchwork_pointer_open ON latchwork_pointer (n) WHERE open = 1;
CREATE INDEX latchwork_pointer_scope ON latchwork_pointer (n, scope) WHERE scope IS NOT NULL;

-- Open waits for events.
CREATE TABLE latchwork_subscription (
    n        INTEGER NOT NULL,
    id       TEXT    NOT NULL,
    pointer  TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    slot     TEXT    NOT NULL,
    as_of    INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (n, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX latchwork_subscription_channel ON latchwork_subscription (name, key);
CREATE INDEX latchwork_subscription_slot ON latchwork_subscription (n, slot);

-- Which events have satisfied which wait slots.
CREATE TABLE latchwork_consumed (
    n     INTEGER NOT NULL,
    slot  TEXT    NOT NULL,
    event TEXT    NOT NULL,
    PRIMARY KEY (n, slot, event)
) STRICT, WITHOUT ROWID;

-- Published events, in order of (time, number) within a channel.
CREATE TABLE latchwork_event (
    number INTEGER PRIMARY KEY,
    id     TEXT    NOT NULL UNIQUE,
    name   TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    time   INTEGER NOT NULL,
    data   TEXT
) STRICT;

CREATE INDEX latchwork_event_channel ON latchwork_event (name, key, time);
CREATE INDEX latchwork_event_time ON latchwork_event (time);

-- Messages for the owners of instances: a control message, or an event that was matched to a wait. An id is never used again.
CREATE TABLE latchwork_inbox (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    n            INTEGER NOT NULL,
    visible      INTEGER NOT NULL,
    control      TEXT,
    subscription TEXT,
    slot         TEXT,
    event        INTEGER
) STRICT;

CREATE INDEX latchwork_inbox_wait ON latchwork_inbox (n, subscription);
CREATE INDEX latchwork_inbox_visible ON latchwork_inbox (visible);
CREATE INDEX latchwork_inbox_event ON latchwork_inbox (event) WHERE event IS NOT NULL;

-- Open activities. `free_at` is when one can be handed out: 0 at once, the end of the claim, or never (the largest number) once
-- a result was submitted.
CREATE TABLE latchwork_activity (
    number     INTEGER PRIMARY KEY,
    n          INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    pointer    TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    parameters TEXT,
    free_at    INTEGER NOT NULL,
    token      TEXT,
    worker     TEXT,
    UNIQUE (n, id)
) STRICT;

CREATE INDEX latchwork_activity_free ON latchwork_activity (name, free_at);
CREATE UNIQUE INDEX latchwork_activity_token ON latchwork_activity (token) WHERE token IS NOT NULL;

-- Declared attributes, which lists can be filtered by. One of the three values is set.
CREATE TABLE latchwork_attribute (
    n      INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    text   TEXT,
    number REAL,
    time   INTEGER,
    PRIMARY KEY (n, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX latchwork_attribute_text ON latchwork_attribute (name, text) WHERE text IS NOT NULL;
CREATE INDEX latchwork_attribute_number ON latchwork_attribute (name, number) WHERE number IS NOT NULL;
CREATE INDEX latchwork_attribute_time ON latchwork_attribute (name, time) WHERE time IS NOT NULL;

-- Errors of steps, the newest of each instance.
CREATE TABLE latchwork_error (
    id      INTEGER PRIMARY KEY,
    n       INTEGER NOT NULL,
    pointer TEXT    NOT NULL,
    step    TEXT    NOT NULL,
    attempt INTEGER NOT NULL,
    time    INTEGER NOT NULL,
    message TEXT    NOT NULL
) STRICT;

CREATE INDEX latchwork_error_instance ON latchwork_error (n);

-- What is left of deleted instances.
CREATE TABLE latchwork_tombstone (
    id           TEXT    NOT NULL PRIMARY KEY,
    definition   TEXT    NOT NULL,
    business_key TEXT,
    status       TEXT    NOT NULL,
    ended        INTEGER NOT NULL,
    result       TEXT,
    deleted      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX latchwork_tombstone_key ON latchwork_tombstone (definition, business_key) WHERE business_key IS NOT NULL;
CREATE INDEX latchwork_tombstone_deleted ON latchwork_tombstone (deleted);

-- The shapes of definitions.
CREATE TABLE latchwork_definition (
    id          TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    fingerprint TEXT    NOT NULL,
    shape       TEXT    NOT NULL,
    PRIMARY KEY (id, version)
) STRICT, WITHOUT ROWID;

-- Which cluster the store belongs to: one row.
CREATE TABLE latchwork_identity (
    one         INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    cluster     TEXT    NOT NULL,
    namespace   TEXT    NOT NULL,
    lock_domain TEXT    NOT NULL
) STRICT;
