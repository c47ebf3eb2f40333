DECLARE @number smallint, @locked int;
DECLARE @stripes nvarchar(max), @applied nvarchar(max), @consumed nvarchar(max), @overs nvarchar(max), @waits nvarchar(max);
DECLARE @activity_overs nvarchar(max), @activities nvarchar(max), @events nvarchar(max), @creates nvarchar(max);
DECLARE @create_attributes nvarchar(max), @messages nvarchar(max);
SELECT
    @stripes = [stripes], @applied = [applied], @consumed = [consumed], @overs = [overs], @waits = [waits],
    @activity_overs = [activity_overs], @activities = [activities], @events = [events], @creates = [creates],
    @create_attributes = [create_attributes], @messages = [messages]
FROM OPENJSON(@P5) WITH (
    [stripes] nvarchar(max) '$.stripes' AS JSON,
    [applied] nvarchar(max) '$.applied' AS JSON,
    [consumed] nvarchar(max) '$.consumed' AS JSON,
    [overs] nvarchar(max) '$.overs' AS JSON,
    [waits] nvarchar(max) '$.waits' AS JSON,
    [activity_overs] nvarchar(max) '$.activity_overs' AS JSON,
    [activities] nvarchar(max) '$.activities' AS JSON,
    [events] nvarchar(max) '$.events' AS JSON,
    [creates] nvarchar(max) '$.creates' AS JSON,
    [create_attributes] nvarchar(max) '$.create_attributes' AS JSON,
    [messages] nvarchar(max) '$.messages' AS JSON
);
-- Waits that are over, and inbox rows that were taken out: of those that held an event.
DECLARE @over TABLE (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [id] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    PRIMARY KEY ([instance], [id])
);
DECLARE @taken TABLE (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [subscription] char(32) COLLATE Latin1_General_100_BIN2 NULL
);
DECLARE @freed TABLE (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [subscription] char(32) COLLATE Latin1_General_100_BIN2 NULL
);
-- Slots whose waits choose again, of one channel each.
DECLARE @loose TABLE (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [slot] nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [key] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [stripe] smallint NOT NULL,
    [freed] bit NOT NULL
);
DECLARE @opened TABLE (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [id] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [pointer] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [key] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [stripe] smallint NOT NULL,
    [slot] nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [as_of] bigint NOT NULL,
    [sequence] bigint NOT NULL,
    PRIMARY KEY ([instance], [id])
);
DECLARE @activity TABLE (
    [at] int NOT NULL PRIMARY KEY,
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [id] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [pointer] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [parameters] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL
);
