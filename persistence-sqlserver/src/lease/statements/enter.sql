-- Enters the host @P1 of the node @P2 with a lease of @P3 milliseconds, and ends that of the host @P4 (empty: none).
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
BEGIN TRANSACTION;
UPDATE [latchwork].[lease_host] SET [owned_until] = SYSUTCDATETIME()
WHERE [host] = @P4 AND [owned_until] > SYSUTCDATETIME();
INSERT INTO [latchwork].[lease_request] ([host], [number]) VALUES (@P1, 0);
INSERT INTO [latchwork].[lease_host] ([host], [node], [owned_until])
VALUES (@P1, @P2, DATEADD(millisecond, @P3, SYSUTCDATETIME()));
COMMIT TRANSACTION;
