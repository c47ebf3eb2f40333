    DELETE e
    FROM @old AS o
    INNER JOIN [latchwork].[event] AS e ON e.[number] = o.[number]
    WHERE NOT EXISTS (SELECT 1 FROM [latchwork].[inbox] AS m WHERE m.[event] = e.[number]);
    SET @events = @@ROWCOUNT;
    COMMIT TRANSACTION;
    IF EXISTS (
        SELECT 1
        FROM [latchwork].[event] AS e
        WHERE e.[time] < @now - @P4 AND NOT EXISTS (SELECT 1 FROM [latchwork].[inbox] AS m WHERE m.[event] = e.[number])
    ) SET @more = 1;
END;
SELECT 0 AS [kind], @tombstones AS [tombstones], @instances AS [instances], @events AS [events], @more AS [more];
