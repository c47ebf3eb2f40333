-- By the primary keys.
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
    INNER JOIN @head AS w ON w.[k] = r.[k] AND w.[won] > 0;
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
    INNER JOIN @head AS w ON w.[k] = r.[k] AND w.[won] > 0
    ORDER BY r.[at];
    -- The newest hundred are kept.
    DELETE e
    FROM @head AS w
    INNER JOIN [latchwork].[error] AS e ON e.[instance] = w.[id]
    WHERE w.[won] > 0 AND e.[id] <= (
        SELECT x.[id]
        FROM [latchwork].[error] AS x
        WHERE x.[instance] = w.[id]
        ORDER BY x.[id] DESC
        OFFSET 100 ROWS FETCH NEXT 1 ROWS ONLY
    );
END;
