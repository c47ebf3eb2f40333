DECLARE @now bigint = DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME());
DECLARE @token char(36) = @P2, @instance char(36), @id char(32);
DECLARE @wanted TABLE ([name] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted ([name]) SELECT DISTINCT [name] COLLATE Latin1_General_100_BIN2 FROM OPENJSON(@P1) WITH ([name] nvarchar(4000) '$[0]');
-- What another is just writing is passed over; the update decides, and who finds it taken looks again. Those never claimed stand first
-- in latchwork_activity_free, in the order of their numbers; those whose claim has ended are few.
WHILE NOT EXISTS (SELECT 1 FROM [latchwork].[activity] AS a WHERE a.[token] = @token)
BEGIN
    SET @instance = NULL;
    SELECT TOP (1) @instance = c.[instance], @id = c.[id]
    FROM @wanted AS w
    CROSS APPLY (
        SELECT f.[instance], f.[id], f.[number]
        FROM (
            SELECT TOP (1) a.[instance], a.[id], a.[number]
            FROM [latchwork].[activity] AS a WITH (READPAST)
            INNER JOIN [latchwork].[instance] AS i WITH (READPAST) ON i.[id] = a.[instance]
            WHERE a.[name] = w.[name] AND a.[free_at] = 0 AND i.[status] = 'runnable'
            ORDER BY a.[number]
        ) AS f
        UNION ALL
        SELECT a.[instance], a.[id], a.[number]
        FROM [latchwork].[activity] AS a WITH (READPAST)
        INNER JOIN [latchwork].[instance] AS i WITH (READPAST) ON i.[id] = a.[instance]
        WHERE a.[name] = w.[name] AND a.[free_at] > 0 AND a.[free_at] <= @now AND i.[status] = 'runnable'
    ) AS c
    ORDER BY c.[number];
    IF @instance IS NULL BREAK;
    UPDATE [latchwork].[activity]
    SET [token] = @token, [worker] = @P3, [free_at] = @now + @P4
    WHERE [instance] = @instance AND [id] = @id AND [free_at] <= @now;
END;
-- By latchwork_activity_token.
SELECT 0 AS [kind], a.[instance], a.[id], a.[name], a.[parameters], a.[free_at]
FROM [latchwork].[activity] AS a
WHERE a.[token] = @token;
