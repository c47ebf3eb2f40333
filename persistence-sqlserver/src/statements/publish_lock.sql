INSERT INTO @stripe ([number], [locked]) SELECT DISTINCT e.[stripe], 0 FROM @event AS e;
BEGIN TRANSACTION;
