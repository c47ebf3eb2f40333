-- Removes what was acknowledged, and gives back what was nacked or dropped, and what was acknowledged after its like arrived.
-- Says whether something waits again. Served by queue_key.
-- @P1 rows of [queue, instance, claim, outcome, delay, position], @P2 owner.
-- Outcomes: 0 acknowledged, 1 nacked, 2 dropped. A hint that arrived in hand does not wait for the delay.
SET NOCOUNT ON;
DECLARE @now bigint = DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME());
DELETE t
FROM OPENJSON(@P1) WITH (
    [queue] varchar(20) '$[0]', [instance] char(36) '$[1]', [claim] bigint '$[2]', [outcome] int '$[3]'
) AS j
INNER JOIN [latchwork].[queue] AS t WITH (ROWLOCK, FORCESEEK) ON t.[queue] = j.[queue] AND t.[instance] = j.[instance]
WHERE t.[owner] = @P2 AND t.[claim] = j.[claim] AND t.[again] = 0 AND j.[outcome] = 0
OPTION (LOOP JOIN, FORCE ORDER);
UPDATE t SET
    [due] = @now + CASE WHEN t.[again] = 1 THEN 0 ELSE j.[delay] END,
    [position] = j.[position],
    [failures] = CASE j.[outcome] WHEN 0 THEN 0 WHEN 1 THEN t.[failures] ELSE t.[failures] + 1 END,
    [owner] = NULL,
    [claim] = NULL,
    [again] = 0
FROM OPENJSON(@P1) WITH (
    [queue] varchar(20) '$[0]',
    [instance] char(36) '$[1]',
    [claim] bigint '$[2]',
    [outcome] int '$[3]',
    [delay] bigint '$[4]',
    [position] bigint '$[5]'
) AS j
INNER JOIN [latchwork].[queue] AS t WITH (ROWLOCK, FORCESEEK) ON t.[queue] = j.[queue] AND t.[instance] = j.[instance]
WHERE t.[owner] = @P2 AND t.[claim] = j.[claim] AND (j.[outcome] <> 0 OR t.[again] = 1)
OPTION (LOOP JOIN, FORCE ORDER);
SELECT @@ROWCOUNT AS [released];
