DECLARE @token char(36) = @P1, @now bigint, @instance char(36), @id char(32), @status varchar(10), @done int = 0;
BEGIN TRANSACTION;
-- The header first, as everybody does. By latchwork_activity_token.
SELECT @instance = a.[instance], @id = a.[id]
FROM [latchwork].[activity] AS a
WHERE a.[token] = @token;
SELECT @status = i.[status]
FROM [latchwork].[instance] AS i WITH (UPDLOCK, ROWLOCK)
WHERE i.[id] = @instance AND i.[status] IN ('runnable', 'suspended');
SET @now = DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME());
IF @status IS NOT NULL
BEGIN
    -- The claim ends, so that no other is given.
    UPDATE [latchwork].[activity]
    SET [token] = NULL, [free_at] = 9223372036854775807
    WHERE [instance] = @instance AND [id] = @id AND [token] = @token
        AND [free_at] > @now;
    SET @done = @@ROWCOUNT;
    IF @done > 0
        INSERT INTO [latchwork].[inbox] ([instance], [visible], [control]) VALUES (@instance, @now, CAST(@P2 AS nvarchar(max)) + @id + @P3);
END;
SELECT 0 AS [kind], i.[id], i.[definition], i.[version]
FROM [latchwork].[instance] AS i
WHERE @done > 0 AND i.[id] = @instance;
COMMIT TRANSACTION;
