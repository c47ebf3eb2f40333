DECLARE @create TABLE (
    [at] int NOT NULL PRIMARY KEY,
    [k] int NOT NULL,
    [id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [definition] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [version] bigint NOT NULL,
    [fingerprint] varchar(100) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [business_key] nvarchar(200) COLLATE Latin1_General_100_BIN2 NULL,
    [reference] nvarchar(200) COLLATE Latin1_General_100_BIN2 NULL,
    [parent] char(36) COLLATE Latin1_General_100_BIN2 NULL,
    [parent_pointer] char(32) COLLATE Latin1_General_100_BIN2 NULL,
    [data] nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    -- 0: to be created; 1: was created before; 2: another has its business key.
    [state] int NOT NULL,
    [holder] char(36) COLLATE Latin1_General_100_BIN2 NULL,
    [status] varchar(10) COLLATE Latin1_General_100_BIN2 NULL
);
-- Those that come after another of the same id, or of the same business key.
DECLARE @twin TABLE ([at] int NOT NULL PRIMARY KEY, [first] int NOT NULL);
