-- Who has one of the events in the inbox, visible. By latchwork_event_id, latchwork_inbox_event and the primary key.
SELECT 2 AS [kind], e.[k], i.[id], i.[definition], i.[version]
FROM @event AS e
INNER JOIN [latchwork].[event] AS v ON v.[id] = e.[id]
INNER JOIN [latchwork].[inbox] AS m ON m.[event] = v.[number]
INNER JOIN [latchwork].[instance] AS i ON i.[id] = m.[instance]
WHERE m.[visible] <= @now;
