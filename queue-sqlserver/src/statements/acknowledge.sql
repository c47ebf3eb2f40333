-- Removes what was acknowledged, and counts it. What is left has had its like arrive in hand, or is in hand no more. Served by
-- queue_key.
-- @P1 rows of [queue, instance, claim], @P2 owner.
SET NOCOUNT ON;
DELETE t
FROM OPENJSON(@P1) WITH ([queue] varchar(20) '$[0]', [instance] char(36) '$[1]', [claim] bigint '$[2]') AS j
INNER JOIN [latchwork].[queue] AS t WITH (ROWLOCK, FORCESEEK) ON t.[queue] = j.[queue] AND t.[instance] = j.[instance]
WHERE t.[owner] = @P2 AND t.[claim] = j.[claim] AND t.[again] = 0
OPTION (LOOP JOIN, FORCE ORDER);
SELECT @@ROWCOUNT AS [removed];
