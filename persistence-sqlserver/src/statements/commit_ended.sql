-- What an instance has no more when it has ended.
IF EXISTS (SELECT 1 FROM @head WHERE [won] = 2)
BEGIN
    DELETE s FROM @head AS w INNER JOIN [latchwork].[subscription] AS s ON s.[instance] = w.[id] WHERE w.[won] = 2;
    DELETE a FROM @head AS w INNER JOIN [latchwork].[activity] AS a ON a.[instance] = w.[id] WHERE w.[won] = 2;
    DELETE m FROM @head AS w INNER JOIN [latchwork].[inbox] AS m ON m.[instance] = w.[id] WHERE w.[won] = 2;
    DELETE c FROM @head AS w INNER JOIN [latchwork].[consumed] AS c ON c.[instance] = w.[id] WHERE w.[won] = 2;
END;
