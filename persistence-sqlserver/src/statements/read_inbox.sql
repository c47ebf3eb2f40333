DECLARE @now bigint = DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME());
DECLARE @wanted TABLE ([id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY, [k] int NOT NULL);
INSERT INTO @wanted ([k], [id])
SELECT MIN([k]), [id] FROM OPENJSON(@P1) WITH ([k] int '$[0]', [id] char(36) '$[1]') GROUP BY [id];
-- By the primary keys.
SELECT
    1 AS [kind], w.[k], m.[id], m.[control], m.[subscription], m.[slot], e.[id] AS [event], e.[name], e.[key], e.[time], e.[number],
    e.[data]
FROM @wanted AS w
INNER JOIN [latchwork].[inbox] AS m ON m.[instance] = w.[id]
LEFT JOIN [latchwork].[event] AS e ON e.[number] = m.[event]
WHERE m.[visible] <= @now;
