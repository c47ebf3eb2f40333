-- Renews leases, also one that has ended and was given to nobody yet. Served by queue_key.
-- @P1 rows of [queue, instance, claim], @P2 the length of a lease, @P3 owner.
SET NOCOUNT ON;
DECLARE @now bigint = DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME());
UPDATE t SET [due] = @now + @P2
OUTPUT inserted.[instance], inserted.[claim]
FROM [latchwork].[queue] AS t WITH (ROWLOCK, FORCESEEK)
INNER JOIN OPENJSON(@P1) WITH ([queue] varchar(20) '$[0]', [instance] char(36) '$[1]', [claim] bigint '$[2]') AS j
    ON t.[queue] = j.[queue] AND t.[instance] = j.[instance]
WHERE t.[owner] = @P3 AND t.[claim] = j.[claim];
