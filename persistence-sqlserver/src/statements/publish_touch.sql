SET @now = DATEDIFF_BIG(MICROSECOND, CAST('1970-01-01' AS datetime2(7)), SYSUTCDATETIME());
INSERT INTO @touched ([id])
SELECT DISTINCT s.[instance]
FROM @event AS e
INNER JOIN [latchwork].[subscription] AS s ON s.[name] = e.[name] AND s.[key] = e.[key];
