-- By the primary key.
SELECT 2 AS [kind], c.[k], c.[id], c.[definition], c.[version] FROM @create AS c WHERE c.[state] = 0;
SELECT 2 AS [kind], m.[k], i.[id], i.[definition], i.[version]
FROM @message AS m
INNER JOIN [latchwork].[instance] AS i ON i.[id] = m.[target]
WHERE i.[status] IN ('runnable', 'suspended');
