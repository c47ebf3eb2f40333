-- Removes what ended leases have left, a bounded number of rows. An ended lease stays ended, so nobody's lock is among them: its row
-- would name another host.
SET NOCOUNT ON;
DECLARE @ended table ([host] char(32) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
-- By the index of ends.
INSERT INTO @ended ([host])
SELECT TOP (100) h.[host] FROM [latchwork].[lease_host] AS h
WHERE h.[owned_until] <= SYSUTCDATETIME() AND EXISTS (SELECT 1 FROM [latchwork].[lease_lock] AS l WHERE l.[host] = h.[host]);
-- By the index of hosts. What somebody is taking over just now is passed by.
DELETE TOP (2000) FROM [latchwork].[lease_lock] WITH (ROWLOCK, READPAST) WHERE [host] IN (SELECT [host] FROM @ended);
DELETE FROM @ended;
-- The hosts themselves an hour later, when no request of theirs can be under way any more.
INSERT INTO @ended ([host])
SELECT TOP (100) h.[host] FROM [latchwork].[lease_host] AS h
WHERE h.[owned_until] <= DATEADD(hour, -1, SYSUTCDATETIME())
    AND NOT EXISTS (SELECT 1 FROM [latchwork].[lease_lock] AS l WHERE l.[host] = h.[host]);
DELETE FROM [latchwork].[lease_request] WHERE [host] IN (SELECT [host] FROM @ended);
DELETE FROM [latchwork].[lease_host] WHERE [host] IN (SELECT [host] FROM @ended);
