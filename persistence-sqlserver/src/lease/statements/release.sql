-- In a transaction of its own, so that nobody waits in a circle for what others free. The row of requests stays locked to its end.
BEGIN TRANSACTION;
UPDATE [latchwork].[lease_request] SET [number] = @P2
WHERE [host] = @P1 AND [number] <= @P2
    AND EXISTS (SELECT 1 FROM [latchwork].[lease_host] WHERE [host] = @P1 AND [owned_until] > SYSUTCDATETIME());
SET @live = @@ROWCOUNT;
IF @live = 1
    -- By the primary key. Owner and token are compared: a stale release frees nothing.
    DELETE l
    FROM [latchwork].[lease_lock] AS l
    INNER JOIN OPENJSON(@P3) WITH ([name] nvarchar(255) '$.name', [fence] bigint '$.fence') AS r
        ON r.[name] COLLATE Latin1_General_100_BIN2 = l.[name]
    WHERE l.[host] = @P1 AND (r.[fence] IS NULL OR r.[fence] = l.[fence]);
COMMIT TRANSACTION;
