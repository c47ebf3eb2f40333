CREATE TABLE latchwork_queue (
    namespace  TEXT    NOT NULL,
    queue      TEXT    NOT NULL,
    instance   TEXT    NOT NULL,
    definition TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    -- When the hint may be taken, in microseconds since 1970, UTC: of one that waits, its due time; of one in hand, the
    -- end of its lease.
    due        INTEGER NOT NULL,
    -- The order of hints of one due time.
    position   INTEGER NOT NULL,
    -- Deliveries whose consumer died or dropped them.
    failures   INTEGER NOT NULL,
    -- Who has it in hand, and by which of its claims; both null while the hint waits.
    owner      TEXT,
    claim      INTEGER,
    -- 1 when its like arrived while it was in hand.
    again      INTEGER NOT NULL,
    PRIMARY KEY (namespace, queue, instance)
) STRICT, WITHOUT ROWID;

CREATE INDEX latchwork_queue_due ON latchwork_queue (namespace, queue, due, position);
