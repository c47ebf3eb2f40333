INSERT INTO @create (
    [at], [k], [id], [definition], [version], [fingerprint], [business_key], [reference], [parent], [parent_pointer], [data], [state]
)
SELECT
    [at], [k], [id], [definition], [version], [fingerprint], [business_key], [reference], [parent], [parent_pointer], [data], 0
FROM OPENJSON(@creates) WITH (
    [at] int '$[0]',
    [k] int '$[1]',
    [id] char(36) '$[2]',
    [definition] nvarchar(4000) '$[3]',
    [version] bigint '$[4]',
    [fingerprint] varchar(100) '$[5]',
    [business_key] nvarchar(4000) '$[6]',
    [reference] nvarchar(4000) '$[7]',
    [parent] char(36) '$[8]',
    [parent_pointer] char(32) '$[9]',
    [data] nvarchar(max) '$[10]'
);
