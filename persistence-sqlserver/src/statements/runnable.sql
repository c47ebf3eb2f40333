DECLARE @now bigint = DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME());
DECLARE @until bigint = @now + @P2, @after char(36) = @P4;
DECLARE @known TABLE (
    [definition] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [version] bigint NOT NULL
);
INSERT INTO @known ([definition], [version])
SELECT DISTINCT [definition] COLLATE Latin1_General_100_BIN2, [version]
FROM OPENJSON(@P1) WITH ([definition] nvarchar(4000) '$[0]', [version] bigint '$[1]');
-- Instances with a row in their inbox are few. By latchwork_inbox_visible and the primary key.
DECLARE @waiting TABLE (
    [id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
    [definition] nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [version] bigint NOT NULL,
    [due] bigint NOT NULL
);
INSERT INTO @waiting ([id], [definition], [version], [due])
SELECT
    i.[id], i.[definition], i.[version], CASE WHEN i.[status] = 'runnable' AND i.[due] < m.[visible] THEN i.[due] ELSE m.[visible] END
FROM (
    SELECT
        x.[instance], MIN(x.[visible]) AS [visible], MIN(CASE WHEN x.[subscription] IS NULL THEN x.[visible] END) AS [control_visible]
    FROM [latchwork].[inbox] AS x
    WHERE x.[visible] <= @until
    GROUP BY x.[instance]
) AS m
INNER JOIN [latchwork].[instance] AS i ON i.[id] = m.[instance]
WHERE i.[status] = 'runnable' OR (i.[status] = 'suspended' AND m.[control_visible] IS NOT NULL);
SELECT 0 AS [kind], @now AS [now];
-- The others are read from latchwork_instance_due in order, so that a page costs what it holds.
SELECT TOP (@P5) 1 AS [kind], r.[id], r.[definition], r.[version], r.[due]
FROM (
    SELECT d.[id], d.[definition], d.[version], d.[due]
    FROM (
        SELECT TOP (@P5) i.[id], i.[definition], i.[version], i.[due]
        FROM [latchwork].[instance] AS i
        WHERE i.[status] = 'runnable' AND i.[due] >= @P3 AND i.[due] <= @until
            AND (i.[due] > @P3 OR i.[id] > @after)
            AND NOT EXISTS (SELECT 1 FROM @waiting AS w WHERE w.[id] = i.[id])
            AND EXISTS (SELECT 1 FROM @known AS k WHERE k.[definition] = i.[definition] AND k.[version] = i.[version])
        ORDER BY i.[due], i.[id]
    ) AS d
    UNION ALL
    SELECT w.[id], w.[definition], w.[version], w.[due]
    FROM @waiting AS w
    INNER JOIN @known AS k ON k.[definition] = w.[definition] AND k.[version] = w.[version]
    WHERE w.[due] > @P3 OR (w.[due] = @P3 AND w.[id] > @after)
) AS r
ORDER BY r.[due], r.[id];
