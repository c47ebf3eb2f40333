DECLARE @attribute TABLE (
    [instance] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [text] nvarchar(400) COLLATE Latin1_General_100_BIN2 NULL,
    [number] float NULL,
    [time] bigint NULL
);
DECLARE @attributes nvarchar(max), @errors nvarchar(max);
SELECT @attributes = [attributes], @errors = [errors]
FROM OPENJSON(@P5) WITH ([attributes] nvarchar(max) '$.attributes' AS JSON, [errors] nvarchar(max) '$.errors' AS JSON);
