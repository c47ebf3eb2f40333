-- By the primary keys.
IF @P2 <> N'[]'
    UPDATE d SET [data] = r.[data]
    FROM OPENJSON(@P2) WITH ([k] int '$[0]', [data] nvarchar(max) '$[1]') AS r
    INNER JOIN @head AS w ON w.[k] = r.[k] AND w.[won] > 0
    INNER JOIN [latchwork].[data] AS d ON d.[instance] = w.[id]
    OPTION (FORCE ORDER, LOOP JOIN);
-- So many at a time that the locks of rows never become one of the table.
WHILE @from < @P4
BEGIN
    UPDATE p SET [open] = r.[open], [scope] = r.[scope], [record] = r.[record], [state] = r.[state]
    FROM OPENJSON(@P3) WITH (
        [at] int '$[0]',
        [k] int '$[1]',
        [sequence] bigint '$[2]',
        [open] bit '$[3]',
        [scope] char(32) '$[4]',
        [record] nvarchar(max) '$[5]',
        [state] nvarchar(max) '$[6]'
    ) AS r
    INNER JOIN @head AS w ON w.[k] = r.[k] AND w.[won] > 0
    INNER JOIN [latchwork].[pointer] AS p ON p.[instance] = w.[id] AND p.[sequence] = r.[sequence]
    WHERE r.[at] >= @from AND r.[at] < @from + 2000
    OPTION (FORCE ORDER, LOOP JOIN);
    INSERT INTO [latchwork].[pointer] ([instance], [sequence], [open], [scope], [record], [state])
    SELECT w.[id], r.[sequence], r.[open], r.[scope], r.[record], r.[state]
    FROM OPENJSON(@P3) WITH (
        [at] int '$[0]',
        [k] int '$[1]',
        [sequence] bigint '$[2]',
        [open] bit '$[3]',
        [scope] char(32) '$[4]',
        [record] nvarchar(max) '$[5]',
        [state] nvarchar(max) '$[6]'
    ) AS r
    INNER JOIN @head AS w ON w.[k] = r.[k] AND w.[won] > 0
    WHERE r.[at] >= @from AND r.[at] < @from + 2000
        AND NOT EXISTS (SELECT 1 FROM [latchwork].[pointer] AS p WHERE p.[instance] = w.[id] AND p.[sequence] = r.[sequence])
    OPTION (FORCE ORDER, LOOP JOIN);
    SET @from = @from + 2000;
END;
