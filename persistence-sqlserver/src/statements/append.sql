DECLARE @now bigint, @locked int, @messages nvarchar(max) = @P1;
DECLARE @touched TABLE ([id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
