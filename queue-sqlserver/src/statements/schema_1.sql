CREATE TABLE [latchwork].[queue] (
    [queue] varchar(20) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [definition] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [version] bigint NOT NULL,
    -- When the hint may be taken, in microseconds since 1970, UTC, by the server's clock: of one that waits, its due time; of one in
    -- hand, the end of its lease.
    [due] bigint NOT NULL,
    -- The order of hints of one due time.
    [position] bigint NOT NULL,
    -- Deliveries whose consumer died or dropped them.
    [failures] bigint NOT NULL,
    -- Who has it in hand, and by which of its claims; both null while the hint waits.
    [owner] nvarchar(100) COLLATE Latin1_General_100_BIN2 NULL,
    [claim] bigint NULL,
    -- 1 when its like arrived while it was in hand.
    [again] bit NOT NULL,
    CONSTRAINT [queue_key] PRIMARY KEY CLUSTERED ([queue], [instance])
);
GO
-- What may be taken, in order, whatever else waits; with what the depth counts.
CREATE INDEX [queue_due] ON [latchwork].[queue] ([queue], [due], [position]) INCLUDE ([claim]);
