-- Each wait gets the earliest event that its slot has neither consumed nor been matched to; of the waits of one slot the oldest chooses
-- first, and the others choose again. Each round matches one wait at least. By latchwork_event_channel, the primary key of consumed, and
-- latchwork_inbox_event.
WHILE EXISTS (SELECT 1 FROM @wait)
BEGIN
    DELETE FROM @match;
    INSERT INTO @match ([instance], [id], [slot], [event], [time], [place])
    SELECT
        w.[instance], w.[id], w.[slot], e.[number], e.[time],
        ROW_NUMBER() OVER (PARTITION BY w.[instance], w.[slot], e.[number] ORDER BY w.[sequence], w.[id])
    FROM @wait AS w
    CROSS APPLY (
        SELECT TOP (1) v.[number], v.[time]
        FROM [latchwork].[event] AS v
        WHERE v.[name] = w.[name] AND v.[key] = w.[key] AND v.[time] >= w.[as_of]
            AND NOT EXISTS (
                SELECT 1
                FROM [latchwork].[consumed] AS c
                WHERE c.[instance] = w.[instance] AND c.[slot] = w.[slot] AND c.[event] = v.[id]
            )
            AND NOT EXISTS (
                SELECT 1
                FROM [latchwork].[inbox] AS m
                WHERE m.[event] = v.[number] AND m.[instance] = w.[instance] AND m.[slot] = w.[slot]
            )
        ORDER BY v.[time], v.[number]
    ) AS e;
    IF NOT EXISTS (SELECT 1 FROM @match) BREAK;
    -- Ids ascend with the events.
    INSERT INTO [latchwork].[inbox] ([instance], [visible], [subscription], [slot], [event])
    SELECT m.[instance], CASE WHEN m.[time] > @now THEN m.[time] ELSE @now END, m.[id], m.[slot], m.[event]
    FROM @match AS m
    WHERE m.[place] = 1
    ORDER BY m.[time], m.[event];
    DELETE w
    FROM @wait AS w
    WHERE NOT EXISTS (SELECT 1 FROM @match AS m WHERE m.[instance] = w.[instance] AND m.[id] = w.[id] AND m.[place] > 1);
END;
