DECLARE @wanted varchar(100) = @P3, @fingerprint varchar(100), @shape nvarchar(max), @used int = 0;
BEGIN TRANSACTION;
SELECT @fingerprint = d.[fingerprint], @shape = d.[shape]
FROM [latchwork].[definition] AS d WITH (UPDLOCK)
WHERE d.[id] = @P1 AND d.[version] = @P2;
IF @fingerprint IS NULL
    INSERT INTO [latchwork].[definition] ([id], [version], [fingerprint], [shape]) VALUES (@P1, @P2, @wanted, @P4);
ELSE IF @fingerprint <> @wanted COLLATE Latin1_General_100_BIN2
BEGIN
    -- Whether an open instance has the stored shape. By latchwork_instance_due.
    SELECT @used = COUNT(*)
    FROM (
        SELECT TOP (1) i.[id]
        FROM [latchwork].[instance] AS i
        WHERE i.[status] IN ('runnable', 'suspended') AND i.[definition] = @P1 AND i.[version] = @P2
            AND i.[fingerprint] = @fingerprint
    ) AS u;
    IF @used = 0
        UPDATE [latchwork].[definition] SET [fingerprint] = @wanted, [shape] = @P4 WHERE [id] = @P1 AND [version] = @P2;
END;
COMMIT TRANSACTION;
SELECT 0 AS [kind], @fingerprint AS [fingerprint], @shape AS [shape] WHERE @used > 0;
