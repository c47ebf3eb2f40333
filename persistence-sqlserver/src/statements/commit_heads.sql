SET @now = DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME());
-- Who has the revision that was loaded wins; locked in ascending order, which the join keeps. By the primary keys.
UPDATE h
SET [won] = CASE WHEN h.[status] IN ('complete', 'terminated') THEN 2 ELSE 1 END
FROM @head AS h, [latchwork].[instance] AS i WITH (UPDLOCK, ROWLOCK)
WHERE i.[id] = h.[id] AND i.[revision] = h.[expected] AND i.[status] IN ('runnable', 'suspended')
OPTION (FORCE ORDER, LOOP JOIN);
SET @won = @@ROWCOUNT;
UPDATE i
SET [revision] = i.[revision] + 1,
    [writer] = h.[writer],
    [status] = h.[status],
    [due] = CASE
        WHEN h.[status] IN ('complete', 'terminated') THEN NULL
        WHEN h.[keeps_due] = 1 THEN i.[due]
        WHEN h.[due_in] IS NOT NULL THEN @now + h.[due_in]
        ELSE h.[due_at]
    END,
    [fault_count] = h.[fault_count],
    [last_sequence] = CASE WHEN h.[last_sequence] > i.[last_sequence] THEN h.[last_sequence] ELSE i.[last_sequence] END,
    [reason] = h.[reason],
    [ended] = CASE WHEN h.[status] IN ('complete', 'terminated') THEN @now END
FROM @head AS h, [latchwork].[instance] AS i
WHERE h.[won] > 0 AND i.[id] = h.[id] AND i.[revision] = h.[expected] AND i.[status] IN ('runnable', 'suspended')
OPTION (FORCE ORDER, LOOP JOIN);
-- Where a server does not heed UPDLOCK another may have come between: all is said again, and then finds it.
IF @@ROWCOUNT <> @won THROW 50409, N'Another wrote one of these instances at the same moment.', 1;
