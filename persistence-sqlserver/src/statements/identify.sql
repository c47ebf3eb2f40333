BEGIN TRANSACTION;
INSERT INTO [latchwork].[identity] ([one], [cluster], [namespace], [lock_domain])
SELECT 1, @P1, @P2, @P3 WHERE NOT EXISTS (SELECT 1 FROM [latchwork].[identity] WITH (UPDLOCK));
IF @P4 = 1 UPDATE [latchwork].[identity] SET [namespace] = @P2, [lock_domain] = @P3;
COMMIT TRANSACTION;
SELECT 0 AS [kind], [cluster], [namespace], [lock_domain] FROM [latchwork].[identity];
