-- Those whose id is known are left. Numbers ascend as the events were given, and are drawn while the stripes are locked. By
-- latchwork_event_id.
INSERT INTO [latchwork].[event] ([id], [name], [key], [stripe], [time], [data])
OUTPUT inserted.[number], inserted.[name], inserted.[key], inserted.[time] INTO @new ([number], [name], [key], [time])
SELECT e.[id], e.[name], e.[key], e.[stripe], COALESCE(e.[time], @now), e.[data]
FROM @event AS e
WHERE NOT EXISTS (SELECT 1 FROM [latchwork].[event] AS x WHERE x.[id] = e.[id])
ORDER BY e.[at];
