DECLARE @now bigint, @from int, @last int;
DECLARE @head TABLE (
    [id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
    [k] int NOT NULL,
    [expected] bigint NOT NULL,
    [writer] varchar(60) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [status] varchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [fault_count] bigint NOT NULL,
    [last_sequence] bigint NOT NULL,
    [reason] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    [keeps_due] bit NOT NULL,
    [due_in] bigint NULL,
    [due_at] bigint NULL
);
DECLARE @won TABLE ([id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @winner TABLE (
    [k] int NOT NULL PRIMARY KEY,
    [id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [ended] bit NOT NULL
);
DECLARE @pointer TABLE (
    [at] int NOT NULL PRIMARY KEY,
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [sequence] bigint NOT NULL,
    [open] bit NOT NULL,
    [scope] char(32) COLLATE Latin1_General_100_BIN2 NULL,
    [record] nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [state] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL
);
DECLARE @attribute TABLE (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [text] nvarchar(400) COLLATE Latin1_General_100_BIN2 NULL,
    [number] float NULL,
    [time] bigint NULL
);
DECLARE @heads nvarchar(max), @data nvarchar(max), @pointers nvarchar(max), @attributes nvarchar(max), @errors nvarchar(max);
SELECT @heads = [heads], @data = [data], @pointers = [pointers], @attributes = [attributes], @errors = [errors]
FROM OPENJSON(@P1) WITH (
    [heads] nvarchar(max) '$.heads' AS JSON,
    [data] nvarchar(max) '$.data' AS JSON,
    [pointers] nvarchar(max) '$.pointers' AS JSON,
    [attributes] nvarchar(max) '$.attributes' AS JSON,
    [errors] nvarchar(max) '$.errors' AS JSON
);
INSERT INTO @head ([k], [id], [expected], [writer], [status], [fault_count], [last_sequence], [reason], [keeps_due], [due_in], [due_at])
SELECT [k], [id], [expected], [writer], [status], [fault_count], [last_sequence], [reason], [keeps_due], [due_in], [due_at]
FROM OPENJSON(@heads) WITH (
    [k] int '$[0]',
    [id] char(36) '$[1]',
    [expected] bigint '$[2]',
    [writer] varchar(60) '$[3]',
    [status] varchar(10) '$[4]',
    [fault_count] bigint '$[5]',
    [last_sequence] bigint '$[6]',
    [reason] nvarchar(max) '$[7]',
    [keeps_due] bit '$[8]',
    [due_in] bigint '$[9]',
    [due_at] bigint '$[10]'
);
