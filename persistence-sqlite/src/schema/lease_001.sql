-- One row per lease of a node. Its locks are the rows of `latchwork_lease_lock` that name it while `owned_until` is in the future.
CREATE TABLE latchwork_lease_host (
    host        TEXT    PRIMARY KEY,
    node        TEXT    NOT NULL,
    owned_until INTEGER NOT NULL,
    -- The number of its last request.
    request     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What has ended, for the clean-up.
CREATE INDEX latchwork_lease_host_end ON latchwork_lease_host (owned_until);

-- One row per held name; gone when it is released.
CREATE TABLE latchwork_lease_lock (
    name  TEXT    PRIMARY KEY,
    host  TEXT    NOT NULL,
    fence INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What an ended lease has left.
CREATE INDEX latchwork_lease_lock_host ON latchwork_lease_lock (host);

-- The last fencing token of all names.
CREATE TABLE latchwork_lease_fence (last INTEGER NOT NULL) STRICT;
INSERT INTO latchwork_lease_fence VALUES (0);
