-- By the primary keys.
IF @data IS NOT NULL
    UPDATE d SET [data] = r.[data]
    FROM OPENJSON(@data) WITH ([k] int '$[0]', [data] nvarchar(max) '$[1]') AS r
    INNER JOIN @winner AS w ON w.[k] = r.[k]
    INNER JOIN [latchwork].[data] AS d ON d.[instance] = w.[id];
IF @pointers IS NOT NULL
BEGIN
    INSERT INTO @pointer ([at], [instance], [sequence], [open], [scope], [record], [state])
    SELECT r.[at], w.[id], r.[sequence], r.[open], r.[scope], r.[record], r.[state]
    FROM OPENJSON(@pointers) WITH (
        [at] int '$[0]',
        [k] int '$[1]',
        [sequence] bigint '$[2]',
        [open] bit '$[3]',
        [scope] char(32) '$[4]',
        [record] nvarchar(max) '$[5]',
        [state] nvarchar(max) '$[6]'
    ) AS r
    INNER JOIN @winner AS w ON w.[k] = r.[k];
    -- So many at a time that the locks of rows never become one of the table.
    SELECT @from = 0, @last = MAX([at]) FROM @pointer;
    WHILE @from <= @last
    BEGIN
        UPDATE p SET [open] = r.[open], [scope] = r.[scope], [record] = r.[record], [state] = r.[state]
        FROM @pointer AS r
        INNER JOIN [latchwork].[pointer] AS p ON p.[instance] = r.[instance] AND p.[sequence] = r.[sequence]
        WHERE r.[at] >= @from AND r.[at] < @from + 2000;
        INSERT INTO [latchwork].[pointer] ([instance], [sequence], [open], [scope], [record], [state])
        SELECT r.[instance], r.[sequence], r.[open], r.[scope], r.[record], r.[state]
        FROM @pointer AS r
        WHERE r.[at] >= @from AND r.[at] < @from + 2000
            AND NOT EXISTS (
                SELECT 1 FROM [latchwork].[pointer] AS p WHERE p.[instance] = r.[instance] AND p.[sequence] = r.[sequence]
            );
        SET @from = @from + 2000;
    END;
END;
IF @attributes IS NOT NULL
BEGIN
    INSERT INTO @attribute ([instance], [name], [text], [number], [time])
    SELECT w.[id], r.[name], r.[text], r.[number], r.[time]
    FROM OPENJSON(@attributes) WITH (
        [k] int '$[0]',
        [name] nvarchar(4000) '$[1]',
        [text] nvarchar(4000) '$[2]',
        [number] float '$[3]',
        [time] bigint '$[4]'
    ) AS r
    INNER JOIN @winner AS w ON w.[k] = r.[k];
    UPDATE a SET [text] = r.[text], [number] = r.[number], [time] = r.[time]
    FROM @attribute AS r
    INNER JOIN [latchwork].[attribute] AS a ON a.[instance] = r.[instance] AND a.[name] = r.[name];
    INSERT INTO [latchwork].[attribute] ([instance], [name], [text], [number], [time])
    SELECT r.[instance], r.[name], r.[text], r.[number], r.[time]
    FROM @attribute AS r
    WHERE NOT EXISTS (SELECT 1 FROM [latchwork].[attribute] AS a WHERE a.[instance] = r.[instance] AND a.[name] = r.[name]);
END;
IF @errors IS NOT NULL
BEGIN
    INSERT INTO [latchwork].[error] ([instance], [pointer], [step], [attempt], [time], [message])
    SELECT w.[id], r.[pointer], r.[step], r.[attempt], r.[time], r.[message]
    FROM OPENJSON(@errors) WITH (
        [at] int '$[0]',
        [k] int '$[1]',
        [pointer] char(32) '$[2]',
        [step] nvarchar(4000) '$[3]',
        [attempt] bigint '$[4]',
        [time] bigint '$[5]',
        [message] nvarchar(max) '$[6]'
    ) AS r
    INNER JOIN @winner AS w ON w.[k] = r.[k]
    ORDER BY r.[at];
    -- The newest hundred are kept.
    DELETE e
    FROM @winner AS w
    INNER JOIN [latchwork].[error] AS e ON e.[instance] = w.[id]
    WHERE e.[id] <= (
        SELECT x.[id]
        FROM [latchwork].[error] AS x
        WHERE x.[instance] = w.[id]
        ORDER BY x.[id] DESC
        OFFSET 100 ROWS FETCH NEXT 1 ROWS ONLY
    );
END;
-- What an instance has no more when it has ended.
IF EXISTS (SELECT 1 FROM @winner WHERE [ended] = 1)
BEGIN
    DELETE s FROM @winner AS w INNER JOIN [latchwork].[subscription] AS s ON s.[instance] = w.[id] WHERE w.[ended] = 1;
    DELETE a FROM @winner AS w INNER JOIN [latchwork].[activity] AS a ON a.[instance] = w.[id] WHERE w.[ended] = 1;
    DELETE m FROM @winner AS w INNER JOIN [latchwork].[inbox] AS m ON m.[instance] = w.[id] WHERE w.[ended] = 1;
    DELETE c FROM @winner AS w INNER JOIN [latchwork].[consumed] AS c ON c.[instance] = w.[id] WHERE w.[ended] = 1;
END;
