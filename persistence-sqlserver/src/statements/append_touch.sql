INSERT INTO @touched ([id]) SELECT DISTINCT m.[target] FROM @message AS m;
BEGIN TRANSACTION;
