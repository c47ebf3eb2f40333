-- Takes future matches back which a new event comes before. By latchwork_subscription_channel, latchwork_inbox_wait and the primary key.
DELETE m
FROM @new AS n
INNER JOIN [latchwork].[subscription] AS s ON s.[name] = n.[name] AND s.[key] = n.[key] AND s.[as_of] <= n.[time]
INNER JOIN [latchwork].[inbox] AS m ON m.[instance] = s.[instance] AND m.[subscription] = s.[id]
INNER JOIN [latchwork].[event] AS f ON f.[number] = m.[event]
WHERE m.[visible] > @now AND (f.[time] > n.[time] OR (f.[time] = n.[time] AND f.[number] > n.[number]));
-- The unmatched waits for the new events. By latchwork_subscription_channel and latchwork_inbox_wait.
INSERT INTO @wait ([instance], [id], [slot], [name], [key], [as_of], [sequence])
SELECT s.[instance], s.[id], s.[slot], s.[name], s.[key], s.[as_of], s.[sequence]
FROM [latchwork].[subscription] AS s
INNER JOIN (SELECT DISTINCT n.[name], n.[key] FROM @new AS n) AS c
    ON s.[name] = c.[name] AND s.[key] = c.[key]
WHERE NOT EXISTS (
        SELECT 1 FROM [latchwork].[inbox] AS m WHERE m.[instance] = s.[instance] AND m.[subscription] = s.[id]
    )
    AND NOT EXISTS (SELECT 1 FROM @wait AS w WHERE w.[instance] = s.[instance] AND w.[id] = s.[id]);
