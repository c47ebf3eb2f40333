-- Counts what waits (delayed hints and ended leases included) and what is in hand, and finds the oldest that waits. What others are
-- writing at the moment is not counted. Reads all hints of the queue, by queue_due.
-- @P1 queue.
DECLARE @queue varchar(20) = @P1, @now bigint = DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME());
SELECT
    COUNT_BIG(*) AS [hints],
    ISNULL(SUM(CAST(CASE WHEN q.[claim] IS NOT NULL AND q.[due] > @now THEN 1 ELSE 0 END AS bigint)), 0) AS [in_hand],
    (
        SELECT TOP (1) @now - o.[due]
        FROM [latchwork].[queue] AS o WITH (READPAST, ROWLOCK, INDEX (queue_due))
        WHERE o.[queue] = @queue AND o.[due] <= @now
        ORDER BY o.[due]
    ) AS [oldest]
FROM [latchwork].[queue] AS q WITH (READPAST, ROWLOCK, INDEX (queue_due))
WHERE q.[queue] = @queue;
