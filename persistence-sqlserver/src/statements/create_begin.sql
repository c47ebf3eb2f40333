DECLARE @now bigint, @creates nvarchar(max), @create_attributes nvarchar(max);
SELECT @creates = [creates], @create_attributes = [attributes]
FROM OPENJSON(@P1) WITH ([creates] nvarchar(max) '$.creates' AS JSON, [attributes] nvarchar(max) '$.attributes' AS JSON);
