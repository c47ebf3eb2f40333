-- A request of the host @P1 with the number @P2: releases @P3, then acquires @P4, each a JSON array. `@live` is 1 while the lease is
-- live and no later request of the host was done.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @live int = 1;
