-- @P1 heads, @P2 data, @P3 pointers and @P4 their number, @P5 all else.
DECLARE @now bigint, @won int, @from int = 0;
DECLARE @head TABLE (
    -- In the order of the ids.
    [k] int NOT NULL PRIMARY KEY,
    [id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [expected] bigint NOT NULL,
    [writer] varchar(60) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [status] varchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [fault_count] bigint NOT NULL,
    [last_sequence] bigint NOT NULL,
    [reason] nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    [keeps_due] bit NOT NULL,
    [due_in] bigint NULL,
    [due_at] bigint NULL,
    -- 1: is written; 2: is written and has ended.
    [won] tinyint NOT NULL
);
INSERT INTO @head ([k], [id], [expected], [writer], [status], [fault_count], [last_sequence], [reason], [keeps_due], [due_in], [due_at], [won])
SELECT [k], [id], [expected], [writer], [status], [fault_count], [last_sequence], [reason], [keeps_due], [due_in], [due_at], 0
FROM OPENJSON(@P1) WITH (
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
