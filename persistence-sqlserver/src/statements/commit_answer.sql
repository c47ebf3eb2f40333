-- By the primary keys.
SELECT
    0 AS [kind], h.[k], i.[revision], CASE WHEN h.[won] > 0 OR i.[writer] = h.[writer] THEN 1 ELSE 0 END AS [written],
    @now AS [now]
FROM @head AS h
LEFT JOIN [latchwork].[instance] AS i ON i.[id] = h.[id];
SELECT
    1 AS [kind], h.[k], m.[id], m.[control], m.[subscription], m.[slot], e.[id] AS [event], e.[name], e.[key], e.[time], e.[number],
    e.[data]
FROM @head AS h
INNER JOIN [latchwork].[inbox] AS m ON m.[instance] = h.[id]
LEFT JOIN [latchwork].[event] AS e ON e.[number] = m.[event]
WHERE m.[visible] <= @now;
