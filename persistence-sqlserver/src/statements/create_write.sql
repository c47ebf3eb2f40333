-- First the instances, then the tombstones: what a purge moves meanwhile is found in one of them. By the primary keys.
UPDATE c SET [state] = 1
FROM @create AS c
WHERE EXISTS (SELECT 1 FROM [latchwork].[instance] AS i WHERE i.[id] = c.[id]);
UPDATE c SET [state] = 1
FROM @create AS c
WHERE c.[state] = 0 AND EXISTS (SELECT 1 FROM [latchwork].[tombstone] AS t WHERE t.[id] = c.[id]);
-- A key whose holder a purge has just forgotten is free, or fails as a duplicate, and is tried again.
UPDATE c SET [state] = 2, [holder] = b.[instance], [status] = COALESCE(i.[status], t.[status])
FROM @create AS c
INNER JOIN [latchwork].[business_key] AS b ON b.[definition] = c.[definition] AND b.[business_key] = c.[business_key]
LEFT JOIN [latchwork].[instance] AS i ON i.[id] = b.[instance]
LEFT JOIN [latchwork].[tombstone] AS t ON t.[id] = b.[instance]
WHERE c.[state] = 0 AND COALESCE(i.[status], t.[status]) IS NOT NULL;
-- Of several in this call the first counts.
INSERT INTO @twin ([at], [first])
SELECT t.[at], t.[first]
FROM (SELECT c.[at], MIN(c.[at]) OVER (PARTITION BY c.[id]) AS [first] FROM @create AS c WHERE c.[state] = 0) AS t
WHERE t.[at] > t.[first];
UPDATE c SET [state] = 1
FROM @create AS c
INNER JOIN @twin AS t ON t.[at] = c.[at];
DELETE FROM @twin;
INSERT INTO @twin ([at], [first])
SELECT t.[at], t.[first]
FROM (
    SELECT c.[at], MIN(c.[at]) OVER (PARTITION BY c.[definition], c.[business_key]) AS [first]
    FROM @create AS c
    WHERE c.[state] = 0 AND c.[business_key] IS NOT NULL
) AS t
WHERE t.[at] > t.[first];
UPDATE c SET [state] = 2, [holder] = f.[id], [status] = 'runnable'
FROM @create AS c
INNER JOIN @twin AS t ON t.[at] = c.[at]
INNER JOIN @create AS f ON f.[at] = t.[first];
-- Before all else, so that of two at the same moment one fails at once, and is tried again.
INSERT INTO [latchwork].[business_key] ([definition], [business_key], [instance])
SELECT c.[definition], c.[business_key], c.[id]
FROM @create AS c
WHERE c.[state] = 0 AND c.[business_key] IS NOT NULL;
INSERT INTO [latchwork].[instance] (
    [id], [definition], [version], [fingerprint], [business_key], [reference], [parent], [parent_pointer],
    [revision], [status], [due], [fault_count], [last_sequence], [created]
)
SELECT
    c.[id], c.[definition], c.[version], c.[fingerprint], c.[business_key], c.[reference], c.[parent], c.[parent_pointer],
    1, 'runnable', @now, 0, 0, @now
FROM @create AS c
WHERE c.[state] = 0
ORDER BY c.[id];
INSERT INTO [latchwork].[data] ([instance], [data])
SELECT c.[id], c.[data]
FROM @create AS c
WHERE c.[state] = 0
ORDER BY c.[id];
INSERT INTO [latchwork].[attribute] ([instance], [name], [text], [number], [time])
SELECT c.[id], a.[name], a.[text], a.[number], a.[time]
FROM OPENJSON(@create_attributes) WITH (
    [at] int '$[0]',
    [name] nvarchar(4000) '$[1]',
    [text] nvarchar(4000) '$[2]',
    [number] float '$[3]',
    [time] bigint '$[4]'
) AS a
INNER JOIN @create AS c ON c.[at] = a.[at]
WHERE c.[state] = 0;
