-- Whom else events and messages may reach, before any header is changed, so that the order holds for all of them. Nobody comes
-- to wait for the events meanwhile: their stripes are locked. By latchwork_subscription_channel.
IF @events IS NOT NULL OR @messages IS NOT NULL
BEGIN
    INSERT INTO @touched ([id])
    SELECT h.[id] FROM @head AS h
    UNION
    SELECT m.[target] FROM @message AS m
    UNION
    SELECT s.[instance]
    FROM @event AS e
    INNER JOIN [latchwork].[subscription] AS s ON s.[name] = e.[name] AND s.[key] = e.[key];
