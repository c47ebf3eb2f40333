-- By the primary keys.
SELECT
    3 AS [kind], c.[at], c.[state], CASE WHEN c.[state] = 2 THEN c.[holder] ELSE c.[id] END AS [holder],
    COALESCE(i.[status], t.[status], 'runnable') AS [status]
FROM @create AS c
LEFT JOIN [latchwork].[instance] AS i ON i.[id] = CASE WHEN c.[state] = 2 THEN c.[holder] ELSE c.[id] END
LEFT JOIN [latchwork].[tombstone] AS t ON t.[id] = CASE WHEN c.[state] = 2 THEN c.[holder] ELSE c.[id] END;
