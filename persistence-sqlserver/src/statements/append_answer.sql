-- By the primary keys.
SELECT
    4 AS [kind], m.[at], i.[definition], COALESCE(i.[version], 0) AS [version], COALESCE(i.[status], t.[status]) AS [status],
    m.[target]
FROM @message AS m
LEFT JOIN [latchwork].[instance] AS i ON i.[id] = m.[target]
LEFT JOIN [latchwork].[tombstone] AS t ON t.[id] = m.[target];
