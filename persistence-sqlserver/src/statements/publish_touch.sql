SET @now = DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME());
INSERT INTO @touched ([id])
SELECT DISTINCT s.[instance]
FROM @event AS e
INNER JOIN [latchwork].[subscription] AS s ON s.[name] = e.[name] AND s.[key] = e.[key];
