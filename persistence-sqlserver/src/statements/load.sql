DECLARE @now bigint = DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME());
DECLARE @wanted TABLE ([id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY, [k] int NOT NULL);
INSERT INTO @wanted ([k], [id]) SELECT [k], [id] FROM OPENJSON(@P1) WITH ([k] int '$[0]', [id] char(36) '$[1]');
-- Each row says what it is and for which of the wanted. By the primary keys, latchwork_pointer_open and latchwork_inbox_wait.
SELECT
    0 AS [kind], w.[k], i.[id], i.[definition], i.[version], i.[fingerprint], i.[business_key], i.[reference], i.[parent],
    i.[parent_pointer], i.[created], i.[status], i.[reason], i.[due], i.[fault_count], i.[ended], i.[revision], i.[writer],
    i.[last_sequence], d.[data], @now AS [now]
FROM @wanted AS w
INNER JOIN [latchwork].[instance] AS i ON i.[id] = w.[id]
INNER JOIN [latchwork].[data] AS d ON d.[instance] = i.[id];
SELECT 1 AS [kind], w.[k], p.[sequence], p.[record], p.[scope], p.[state]
FROM @wanted AS w
INNER JOIN [latchwork].[pointer] AS p ON p.[instance] = w.[id] AND p.[open] = 1;
SELECT 2 AS [kind], w.[k], s.[id], s.[pointer], s.[name], s.[key], s.[slot], s.[as_of], s.[sequence]
FROM @wanted AS w
INNER JOIN [latchwork].[subscription] AS s ON s.[instance] = w.[id];
SELECT 3 AS [kind], w.[k], a.[number], a.[id], a.[pointer], a.[name], a.[parameters]
FROM @wanted AS w
INNER JOIN [latchwork].[activity] AS a ON a.[instance] = w.[id];
SELECT
    4 AS [kind], w.[k], m.[id], m.[control], m.[subscription], m.[slot], e.[id] AS [event], e.[name], e.[key], e.[time], e.[number],
    e.[data]
FROM @wanted AS w
INNER JOIN [latchwork].[inbox] AS m ON m.[instance] = w.[id]
LEFT JOIN [latchwork].[event] AS e ON e.[number] = m.[event]
WHERE m.[visible] <= @now;
-- Still the revision that was read first: then all is of one moment.
SELECT 5 AS [kind], w.[k], i.[revision]
FROM @wanted AS w
INNER JOIN [latchwork].[instance] AS i ON i.[id] = w.[id];
