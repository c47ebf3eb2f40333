-- Only for those that are open, and stay so until this transaction has ended, since their headers are locked. By the primary key.
INSERT INTO [latchwork].[inbox] ([instance], [visible], [control])
SELECT i.[id], @now, m.[control]
FROM @message AS m
INNER JOIN [latchwork].[instance] AS i ON i.[id] = m.[target]
WHERE i.[status] IN ('runnable', 'suspended')
ORDER BY m.[at];
