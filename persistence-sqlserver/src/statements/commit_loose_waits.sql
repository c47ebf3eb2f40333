    -- Future matches of a slot that got an event back are made anew. By the primary key and latchwork_inbox_wait.
    DELETE m
    FROM @loose AS l
    INNER JOIN [latchwork].[subscription] AS s
        ON s.[instance] = l.[instance] AND s.[slot] = l.[slot] AND s.[name] = l.[name] AND s.[key] = l.[key]
    INNER JOIN [latchwork].[inbox] AS m ON m.[instance] = s.[instance] AND m.[subscription] = s.[id]
    WHERE l.[freed] = 1 AND m.[visible] > @now;
    INSERT INTO @wait ([instance], [id], [slot], [name], [key], [as_of], [sequence])
    SELECT DISTINCT s.[instance], s.[id], s.[slot], s.[name], s.[key], s.[as_of], s.[sequence]
    FROM @loose AS l
    INNER JOIN [latchwork].[subscription] AS s
        ON s.[instance] = l.[instance] AND s.[slot] = l.[slot] AND s.[name] = l.[name] AND s.[key] = l.[key]
    WHERE NOT EXISTS (
            SELECT 1 FROM [latchwork].[inbox] AS m WHERE m.[instance] = s.[instance] AND m.[subscription] = s.[id]
        )
        AND NOT EXISTS (SELECT 1 FROM @wait AS w WHERE w.[instance] = s.[instance] AND w.[id] = s.[id]);
END;
