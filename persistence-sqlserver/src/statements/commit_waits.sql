-- By the primary keys and latchwork_inbox_wait.
IF @applied IS NOT NULL
    DELETE m
    OUTPUT deleted.[instance], deleted.[subscription] INTO @taken ([instance], [subscription])
    FROM OPENJSON(@applied) WITH ([k] int '$[0]', [id] bigint '$[1]') AS r, @head AS w, [latchwork].[inbox] AS m
    WHERE w.[k] = r.[k] AND w.[won] > 0 AND m.[instance] = w.[id] AND m.[id] = r.[id];
IF @consumed IS NOT NULL
BEGIN
    INSERT INTO [latchwork].[consumed] ([instance], [slot], [event])
    SELECT DISTINCT w.[id], r.[slot] COLLATE Latin1_General_100_BIN2, r.[event]
    FROM OPENJSON(@consumed) WITH ([k] int '$[0]', [slot] nvarchar(4000) '$[1]', [event] char(36) '$[2]') AS r
    INNER JOIN @head AS w ON w.[k] = r.[k] AND w.[won] > 0
    WHERE NOT EXISTS (
        SELECT 1
        FROM [latchwork].[consumed] AS c
        WHERE c.[instance] = w.[id]
            AND c.[slot] = r.[slot] COLLATE Latin1_General_100_BIN2
            AND c.[event] = r.[event] COLLATE Latin1_General_100_BIN2
    );
END;
IF @overs IS NOT NULL
BEGIN
    INSERT INTO @over ([instance], [id])
    SELECT DISTINCT w.[id], r.[id]
    FROM OPENJSON(@overs) WITH ([k] int '$[0]', [id] char(32) '$[1]') AS r
    INNER JOIN @head AS w ON w.[k] = r.[k] AND w.[won] > 0;
    DELETE m
    OUTPUT deleted.[instance], deleted.[subscription] INTO @freed ([instance], [subscription])
    FROM @over AS o, [latchwork].[inbox] AS m
    WHERE m.[instance] = o.[instance] AND m.[subscription] = o.[id];
    -- What was matched to a wait that is over is offered to the next one of its slot.
    INSERT INTO @loose ([instance], [slot], [name], [key], [stripe], [freed])
    SELECT DISTINCT s.[instance], s.[slot], s.[name], s.[key], s.[stripe], 1
    FROM @freed AS f
    INNER JOIN [latchwork].[subscription] AS s ON s.[instance] = f.[instance] AND s.[id] = f.[subscription];
    DELETE s
    FROM @over AS o
    INNER JOIN [latchwork].[subscription] AS s ON s.[instance] = o.[instance] AND s.[id] = o.[id];
END;
-- A wait whose row was taken out and which stays open looks for an event again.
IF @applied IS NOT NULL
    INSERT INTO @loose ([instance], [slot], [name], [key], [stripe], [freed])
    SELECT DISTINCT s.[instance], s.[slot], s.[name], s.[key], s.[stripe], 0
    FROM @taken AS t
    INNER JOIN [latchwork].[subscription] AS s ON s.[instance] = t.[instance] AND s.[id] = t.[subscription];
IF @waits IS NOT NULL
BEGIN
    INSERT INTO @opened ([instance], [id], [pointer], [name], [key], [stripe], [slot], [as_of], [sequence])
    SELECT w.[id], r.[id], r.[pointer], r.[name], r.[key], r.[stripe], r.[slot], r.[as_of], r.[sequence]
    FROM OPENJSON(@waits) WITH (
        [k] int '$[0]',
        [id] char(32) '$[1]',
        [pointer] char(32) '$[2]',
        [name] nvarchar(4000) '$[3]',
        [key] nvarchar(4000) '$[4]',
        [stripe] smallint '$[5]',
        [slot] nvarchar(4000) '$[6]',
        [as_of] bigint '$[7]',
        [sequence] bigint '$[8]'
    ) AS r
    INNER JOIN @head AS w ON w.[k] = r.[k] AND w.[won] > 0;
    INSERT INTO [latchwork].[subscription] ([instance], [id], [pointer], [name], [key], [stripe], [slot], [as_of], [sequence])
    SELECT o.[instance], o.[id], o.[pointer], o.[name], o.[key], o.[stripe], o.[slot], o.[as_of], o.[sequence]
    FROM @opened AS o
    WHERE NOT EXISTS (SELECT 1 FROM [latchwork].[subscription] AS s WHERE s.[instance] = o.[instance] AND s.[id] = o.[id]);
    INSERT INTO @wait ([instance], [id], [slot], [name], [key], [as_of], [sequence])
    SELECT s.[instance], s.[id], s.[slot], s.[name], s.[key], s.[as_of], s.[sequence]
    FROM @opened AS o
    INNER JOIN [latchwork].[subscription] AS s ON s.[instance] = o.[instance] AND s.[id] = o.[id]
    WHERE NOT EXISTS (
        SELECT 1 FROM [latchwork].[inbox] AS m WHERE m.[instance] = s.[instance] AND m.[subscription] = s.[id]
    );
END;
IF @activity_overs IS NOT NULL
    DELETE a
    FROM OPENJSON(@activity_overs) WITH ([k] int '$[0]', [id] char(32) '$[1]') AS r
    INNER JOIN @head AS w ON w.[k] = r.[k] AND w.[won] > 0
    INNER JOIN [latchwork].[activity] AS a ON a.[instance] = w.[id] AND a.[id] = r.[id] COLLATE Latin1_General_100_BIN2;
IF @activities IS NOT NULL
BEGIN
    INSERT INTO @activity ([at], [instance], [id], [pointer], [name], [parameters])
    SELECT r.[at], w.[id], r.[id], r.[pointer], r.[name], r.[parameters]
    FROM OPENJSON(@activities) WITH (
        [at] int '$[0]',
        [k] int '$[1]',
        [id] char(32) '$[2]',
        [pointer] char(32) '$[3]',
        [name] nvarchar(4000) '$[4]',
        [parameters] nvarchar(max) '$[5]'
    ) AS r
    INNER JOIN @head AS w ON w.[k] = r.[k] AND w.[won] > 0;
    INSERT INTO [latchwork].[activity] ([instance], [id], [pointer], [name], [parameters], [free_at])
    SELECT n.[instance], n.[id], n.[pointer], n.[name], n.[parameters], 0
    FROM @activity AS n
    WHERE NOT EXISTS (SELECT 1 FROM [latchwork].[activity] AS a WHERE a.[instance] = n.[instance] AND a.[id] = n.[id])
    ORDER BY n.[at];
END;
