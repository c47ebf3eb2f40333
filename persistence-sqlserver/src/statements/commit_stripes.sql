IF @stripes IS NOT NULL
    INSERT INTO @stripe ([number], [locked])
    SELECT DISTINCT r.[number], 0 FROM OPENJSON(@stripes) WITH ([number] smallint '$[0]') AS r;
