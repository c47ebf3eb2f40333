SET @now = DATEDIFF_BIG(MICROSECOND, CAST('1970-01-01' AS datetime2(7)), SYSUTCDATETIME());
-- Who has the revision that was loaded wins; in ascending order, which the join keeps. By the primary key.
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
OUTPUT inserted.[id] INTO @won ([id])
FROM @head AS h, [latchwork].[instance] AS i
WHERE i.[id] = h.[id] AND i.[revision] = h.[expected] AND i.[status] IN ('runnable', 'suspended')
OPTION (FORCE ORDER, LOOP JOIN);
INSERT INTO @winner ([k], [id], [ended])
SELECT h.[k], h.[id], CASE WHEN h.[status] IN ('complete', 'terminated') THEN 1 ELSE 0 END
FROM @won AS w
INNER JOIN @head AS h ON h.[id] = w.[id];
