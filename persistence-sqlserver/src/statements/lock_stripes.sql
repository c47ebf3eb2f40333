-- One after the other in ascending order, so that no two transactions wait for each other. By the primary key.
WHILE 1 = 1
BEGIN
    SELECT @number = MIN([number]) FROM @stripe WHERE [locked] = 0;
    IF @number IS NULL BREAK;
    UPDATE [latchwork].[stripe] SET [turn] = [turn] + 1 WHERE [number] = @number;
    UPDATE @stripe SET [locked] = 1 WHERE [number] = @number;
END;
