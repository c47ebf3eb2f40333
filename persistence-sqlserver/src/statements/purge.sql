DECLARE @now bigint = DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME());
DECLARE @tombstones bigint = 0, @instances bigint = 0, @events bigint = 0, @more int = 0, @number smallint, @locked int, @found int;
DECLARE @dead TABLE ([id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @status TABLE ([status] varchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @ended TABLE (
    [id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY, [ended] bigint NOT NULL, [rows] bigint NOT NULL
);
DECLARE @touched TABLE ([id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @old TABLE ([number] bigint NOT NULL PRIMARY KEY, [stripe] smallint NOT NULL);
DECLARE @stripe TABLE ([number] smallint NOT NULL PRIMARY KEY, [locked] bit NOT NULL);
-- The oldest tombstones. By latchwork_tombstone_deleted and the primary keys.
IF @P2 >= 0
BEGIN
    INSERT INTO @dead ([id])
    SELECT TOP (@P1) t.[id] FROM [latchwork].[tombstone] AS t WHERE t.[deleted] < @now - @P2 ORDER BY t.[deleted];
    BEGIN TRANSACTION;
    DELETE b
    FROM @dead AS d
    INNER JOIN [latchwork].[tombstone] AS t ON t.[id] = d.[id]
    INNER JOIN [latchwork].[business_key] AS b ON b.[definition] = t.[definition] AND b.[business_key] = t.[business_key]
    WHERE b.[instance] = d.[id];
    DELETE t FROM @dead AS d INNER JOIN [latchwork].[tombstone] AS t ON t.[id] = d.[id];
    SET @tombstones = @@ROWCOUNT;
    COMMIT TRANSACTION;
    IF EXISTS (SELECT 1 FROM [latchwork].[tombstone] AS t WHERE t.[deleted] < @now - @P2) SET @more = 1;
END;
-- The instances that ended first, of the wanted statuses only, so that those of another, which may be kept for ever, cost nothing. By
-- latchwork_instance_ended.
IF @P3 >= 0
BEGIN
    INSERT INTO @status ([status]) SELECT [status] FROM OPENJSON(@P5) WITH ([status] varchar(10) '$[0]');
    INSERT INTO @ended ([id], [ended], [rows])
    SELECT f.[id], f.[ended], f.[last_sequence] + 1
    FROM @status AS s
    CROSS APPLY (
        SELECT TOP (@P1 + 1) i.[id], i.[ended], i.[last_sequence]
        FROM [latchwork].[instance] AS i
        WHERE i.[status] = s.[status] AND i.[ended] IS NOT NULL AND i.[ended] < @now - @P3
        ORDER BY i.[ended], i.[id]
    ) AS f;
    SET @found = @@ROWCOUNT;
    -- As many as are asked for, and no more than so many rows at once, but one at least.
    INSERT INTO @touched ([id])
    SELECT TOP (@P1) e.[id]
    FROM (
        SELECT
            x.[id], x.[ended], ROW_NUMBER() OVER (ORDER BY x.[ended], x.[id]) AS [place],
            SUM(x.[rows]) OVER (ORDER BY x.[ended], x.[id] ROWS UNBOUNDED PRECEDING) AS [sum]
        FROM @ended AS x
    ) AS e
    WHERE e.[place] = 1 OR e.[sum] <= 20000
    ORDER BY e.[ended], e.[id];
    IF @found > @@ROWCOUNT SET @more = 1;
