-- Ends the lease of the host @P1, and with it all its locks; their rows are left to the clean-up.
SET NOCOUNT ON;
UPDATE [latchwork].[lease_host] SET [owned_until] = SYSUTCDATETIME()
WHERE [host] = @P1 AND [owned_until] > SYSUTCDATETIME();
