DECLARE @now bigint, @number smallint, @locked int, @events nvarchar(max) = @P1;
