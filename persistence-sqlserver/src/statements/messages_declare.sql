DECLARE @message TABLE (
    [at] int NOT NULL PRIMARY KEY,
    [k] int NOT NULL,
    [target] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [control] nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL
);
