BEGIN TRANSACTION;
IF @live = 1
BEGIN
    UPDATE [latchwork].[lease_request] SET [number] = @P2
    WHERE [host] = @P1 AND [number] <= @P2
        AND EXISTS (SELECT 1 FROM [latchwork].[lease_host] WHERE [host] = @P1 AND [owned_until] > SYSUTCDATETIME());
    SET @live = @@ROWCOUNT;
END;
DECLARE @asked table (
    [name] nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
    [position] int NOT NULL,
    [host] char(32) COLLATE Latin1_General_100_BIN2 NULL,
    [fence] bigint NULL
);
IF @live = 1
BEGIN
    -- Who has them now: seen before the hosts are looked at, so a host that is not found live then is dead for good.
    INSERT INTO @asked ([name], [position], [host], [fence])
    SELECT a.[value] COLLATE Latin1_General_100_BIN2, CAST(a.[key] AS int), l.[host], l.[fence]
    FROM OPENJSON(@P4) AS a
    LEFT JOIN [latchwork].[lease_lock] AS l ON l.[name] = a.[value] COLLATE Latin1_General_100_BIN2;
    -- Takes over what a dead host has, or what a request of this host without an answer left; by the primary key, and only as it was seen.
    UPDATE l SET [host] = @P1
    FROM [latchwork].[lease_lock] AS l
    INNER JOIN @asked AS a ON a.[name] = l.[name] AND a.[host] = l.[host] AND a.[fence] = l.[fence]
    WHERE l.[host] = @P1 OR NOT EXISTS (
        SELECT 1 FROM [latchwork].[lease_host] AS h WHERE h.[host] = l.[host] AND h.[owned_until] > SYSUTCDATETIME()
    );
    -- Takes what nobody has. In order, so that requests of two hosts do not wait in a circle.
    INSERT INTO [latchwork].[lease_lock] ([name], [host], [fence])
    SELECT a.[name], @P1, 0
    FROM @asked AS a
    WHERE a.[host] IS NULL AND NOT EXISTS (SELECT 1 FROM [latchwork].[lease_lock] AS l WHERE l.[name] = a.[name])
    ORDER BY a.[name];
    -- Their rows are locked from here to the end, so that the numbers of one name ascend.
    UPDATE [latchwork].[lease_lock] SET [fence] = NEXT VALUE FOR [latchwork].[lease_fence]
    WHERE [host] = @P1 AND [name] IN (SELECT [name] FROM @asked);
    SELECT a.[position], l.[fence]
    FROM @asked AS a
    INNER JOIN [latchwork].[lease_lock] AS l ON l.[name] = a.[name]
    WHERE l.[host] = @P1;
END;
COMMIT TRANSACTION;
