DECLARE @now bigint = DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME());
-- By indexes that hold all that is counted.
SELECT 0 AS [kind], i.[status], COUNT_BIG(*) AS [count] FROM [latchwork].[instance] AS i GROUP BY i.[status];
SELECT
    1 AS [kind],
    (SELECT MIN(i.[due]) FROM [latchwork].[instance] AS i WHERE i.[status] = 'runnable' AND i.[due] IS NOT NULL) AS [next_due],
    (SELECT COUNT_BIG(*) FROM [latchwork].[event]) AS [events],
    (SELECT COUNT_BIG(*) FROM [latchwork].[inbox]) AS [inbox],
    (SELECT COUNT_BIG(*) FROM [latchwork].[activity] AS a WHERE a.[free_at] <= @now) AS [activities];
