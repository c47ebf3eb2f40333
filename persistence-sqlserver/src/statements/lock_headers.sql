-- In ascending order, which the join keeps: nobody's owner commits, and nobody deletes, before this transaction has ended. By the
-- primary key.
SELECT @locked = COUNT(*)
FROM @touched AS t, [latchwork].[instance] AS i WITH (UPDLOCK, ROWLOCK)
WHERE i.[id] = t.[id]
OPTION (FORCE ORDER, LOOP JOIN);
