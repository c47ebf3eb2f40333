-- Adds hints. Served by queue_key.
-- @P1 rows of [queue, instance, definition, version, position], each instance once; @P2 the length of a lease.
--
-- A hint that waits already stays as it is, and is not written. A delayed one comes at once; one in hand comes again after its
-- settlement. A lease that ends later than any lease can (the clock was turned back) is cut to the length of one.
-- What another connection adds between the two statements is an error 2627: all is said again, and then finds it.
SET NOCOUNT ON;
DECLARE @now bigint = DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME());
UPDATE t SET
    [again] = CASE WHEN t.[owner] IS NULL THEN 0 ELSE 1 END,
    [position] = CASE WHEN t.[owner] IS NULL THEN j.[position] ELSE t.[position] END,
    [due] = CASE WHEN t.[owner] IS NULL THEN @now WHEN t.[due] > @now + @P2 THEN @now + @P2 ELSE t.[due] END
FROM OPENJSON(@P1) WITH ([queue] varchar(20) '$[0]', [instance] char(36) '$[1]', [position] bigint '$[4]') AS j
INNER JOIN [latchwork].[queue] AS t WITH (ROWLOCK, FORCESEEK) ON t.[queue] = j.[queue] AND t.[instance] = j.[instance]
WHERE (t.[owner] IS NULL AND t.[due] > @now) OR (t.[owner] IS NOT NULL AND (t.[again] = 0 OR t.[due] > @now + @P2))
OPTION (LOOP JOIN, FORCE ORDER);
INSERT INTO [latchwork].[queue] ([queue], [instance], [definition], [version], [due], [position], [failures], [again])
SELECT j.[queue], j.[instance], j.[definition], j.[version], @now, j.[position], 0, 0
FROM OPENJSON(@P1) WITH (
    [queue] varchar(20) '$[0]',
    [instance] char(36) '$[1]',
    [definition] nvarchar(200) '$[2]',
    [version] bigint '$[3]',
    [position] bigint '$[4]'
) AS j
WHERE NOT EXISTS (
    SELECT 1 FROM [latchwork].[queue] AS t WITH (ROWLOCK, FORCESEEK) WHERE t.[queue] = j.[queue] AND t.[instance] = j.[instance]
)
OPTION (LOOP JOIN, FORCE ORDER);
