-- Renews leases, also one that has ended and was given to nobody yet, and names those that are held. Served by queue_key.
-- @P1 rows of [queue, instance, claim, key], @P2 the length of a lease, @P3 owner.
SET NOCOUNT ON;
DECLARE @now bigint = DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME());
UPDATE t SET [due] = @now + @P2
FROM OPENJSON(@P1) WITH ([queue] varchar(20) '$[0]', [instance] char(36) '$[1]', [claim] bigint '$[2]') AS j
INNER JOIN [latchwork].[queue] AS t WITH (ROWLOCK, FORCESEEK) ON t.[queue] = j.[queue] AND t.[instance] = j.[instance]
WHERE t.[owner] = @P3 AND t.[claim] = j.[claim]
OPTION (LOOP JOIN, FORCE ORDER);
SELECT j.[key]
FROM OPENJSON(@P1) WITH (
    [queue] varchar(20) '$[0]', [instance] char(36) '$[1]', [claim] bigint '$[2]', [key] bigint '$[3]'
) AS j
INNER JOIN [latchwork].[queue] AS t WITH (ROWLOCK, FORCESEEK) ON t.[queue] = j.[queue] AND t.[instance] = j.[instance]
WHERE t.[owner] = @P3 AND t.[claim] = j.[claim]
OPTION (LOOP JOIN, FORCE ORDER);
