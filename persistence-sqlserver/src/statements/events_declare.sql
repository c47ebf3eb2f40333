DECLARE @stripe TABLE ([number] smallint NOT NULL PRIMARY KEY, [locked] bit NOT NULL);
DECLARE @touched TABLE ([id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @event TABLE (
    [at] int NOT NULL PRIMARY KEY,
    [k] int NOT NULL,
    [id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [key] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [stripe] smallint NOT NULL,
    [time] bigint NULL,
    [data] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL
);
DECLARE @new TABLE (
    [number] bigint NOT NULL PRIMARY KEY,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [key] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [time] bigint NOT NULL
);
DECLARE @wait TABLE (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [id] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [slot] nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [key] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [as_of] bigint NOT NULL,
    [sequence] bigint NOT NULL,
    PRIMARY KEY ([instance], [id])
);
DECLARE @match TABLE (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [id] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [slot] nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [event] bigint NOT NULL,
    [time] bigint NOT NULL,
    [place] bigint NOT NULL,
    PRIMARY KEY ([instance], [id])
);
