-- Lets the live lease of the host @P1 last for @P2 milliseconds from now. What has expired is not revived.
SET NOCOUNT ON;
UPDATE [latchwork].[lease_host] SET [owned_until] = DATEADD(millisecond, @P2, SYSUTCDATETIME())
WHERE [host] = @P1 AND [owned_until] > SYSUTCDATETIME();
SELECT @@ROWCOUNT AS [live];
