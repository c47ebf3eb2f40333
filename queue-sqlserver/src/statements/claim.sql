-- Hands out hints, those that wait and are due, and those whose lease has ended; then, unless there were as many as were asked for,
-- says how long it is until the next is due.
-- Found by queue_due alone, in order; written by queue_key. What others are writing is passed over. Where it is not (READPAST is a
-- matter of speed) the second look at the due time decides, on the row as it is when it is written.
-- @P1 queue, @P2 the most rows, @P3 the length of a lease, @P4 owner, @P5 claim.
SET NOCOUNT ON;
DECLARE @queue varchar(20) = @P1, @now bigint = DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME());
UPDATE [latchwork].[queue] WITH (ROWLOCK) SET
    [due] = @now + @P3,
    [failures] = [failures] + CASE WHEN [owner] IS NULL THEN 0 ELSE 1 END,
    [owner] = @P4,
    [claim] = @P5,
    [again] = 0
OUTPUT inserted.[instance], inserted.[definition], inserted.[version], inserted.[failures], inserted.[position]
WHERE [queue] = @queue AND [due] <= @now AND [instance] IN (
    SELECT TOP (@P2) q.[instance]
    FROM [latchwork].[queue] AS q WITH (READPAST, UPDLOCK, ROWLOCK, INDEX (queue_due))
    WHERE q.[queue] = @queue AND q.[due] <= @now
    ORDER BY q.[due], q.[position]
);
IF @@ROWCOUNT < @P2
    SELECT (
        SELECT TOP (1) q.[due] - @now
        FROM [latchwork].[queue] AS q WITH (READPAST, ROWLOCK, INDEX (queue_due))
        WHERE q.[queue] = @queue
        ORDER BY q.[due]
    ) AS [left];
