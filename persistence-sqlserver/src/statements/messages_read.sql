INSERT INTO @message ([at], [k], [target], [control])
SELECT [at], [k], [target], [control]
FROM OPENJSON(@messages) WITH (
    [at] int '$[0]', [k] int '$[1]', [target] char(36) '$[2]', [control] nvarchar(max) '$[3]'
);
