SELECT
    3 AS [kind], c.[at], c.[state], COALESCE(c.[holder], c.[id]) AS [holder],
    COALESCE(c.[status], 'runnable') AS [status]
FROM @create AS c;
