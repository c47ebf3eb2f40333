INSERT INTO @event ([at], [k], [id], [name], [key], [stripe], [time], [data])
SELECT [at], [k], [id], [name], [key], [stripe], [time], [data]
FROM OPENJSON(@events) WITH (
    [at] int '$[0]',
    [k] int '$[1]',
    [id] char(36) '$[2]',
    [name] nvarchar(4000) '$[3]',
    [key] nvarchar(4000) '$[4]',
    [stripe] smallint '$[5]',
    [time] bigint '$[6]',
    [data] nvarchar(max) '$[7]'
);
