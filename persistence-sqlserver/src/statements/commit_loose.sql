-- Rarely a channel is concerned that nobody could know of before. Its stripe may be out of order, which a deadlock would tell.
IF EXISTS (SELECT 1 FROM @loose)
BEGIN
    INSERT INTO @stripe ([number], [locked])
    SELECT DISTINCT l.[stripe], 0
    FROM @loose AS l
    WHERE NOT EXISTS (SELECT 1 FROM @stripe AS x WHERE x.[number] = l.[stripe]);
