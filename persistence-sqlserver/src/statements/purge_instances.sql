    SET @now = DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME());
    INSERT INTO [latchwork].[tombstone] ([id], [definition], [business_key], [status], [ended], [result], [deleted])
    SELECT
        i.[id], i.[definition], i.[business_key], i.[status], i.[ended], CASE WHEN DATALENGTH(d.[data]) <= 16384 THEN d.[data] END, @now
    FROM @touched AS t
    INNER JOIN [latchwork].[instance] AS i ON i.[id] = t.[id]
    INNER JOIN [latchwork].[data] AS d ON d.[instance] = i.[id];
    DELETE x FROM @touched AS t INNER JOIN [latchwork].[data] AS x ON x.[instance] = t.[id];
    DELETE x FROM @touched AS t INNER JOIN [latchwork].[pointer] AS x ON x.[instance] = t.[id];
    DELETE x FROM @touched AS t INNER JOIN [latchwork].[subscription] AS x ON x.[instance] = t.[id];
    DELETE x FROM @touched AS t INNER JOIN [latchwork].[consumed] AS x ON x.[instance] = t.[id];
    DELETE x FROM @touched AS t INNER JOIN [latchwork].[inbox] AS x ON x.[instance] = t.[id];
    DELETE x FROM @touched AS t INNER JOIN [latchwork].[activity] AS x ON x.[instance] = t.[id];
    DELETE x FROM @touched AS t INNER JOIN [latchwork].[attribute] AS x ON x.[instance] = t.[id];
    DELETE x FROM @touched AS t INNER JOIN [latchwork].[error] AS x ON x.[instance] = t.[id];
    DELETE x FROM @touched AS t INNER JOIN [latchwork].[instance] AS x ON x.[id] = t.[id];
    SET @instances = @@ROWCOUNT;
    COMMIT TRANSACTION;
END;
-- The oldest events that stand in no inbox. Their stripes are locked, so that none is matched meanwhile. By latchwork_event_time and
-- latchwork_inbox_event.
IF @P4 >= 0
BEGIN
    INSERT INTO @old ([number], [stripe])
    SELECT TOP (@P1) e.[number], e.[stripe]
    FROM [latchwork].[event] AS e
    WHERE e.[time] < @now - @P4 AND NOT EXISTS (SELECT 1 FROM [latchwork].[inbox] AS m WHERE m.[event] = e.[number])
    ORDER BY e.[time];
    INSERT INTO @stripe ([number], [locked]) SELECT DISTINCT o.[stripe], 0 FROM @old AS o;
    BEGIN TRANSACTION;
