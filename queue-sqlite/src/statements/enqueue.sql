-- Adds hints. Served by the primary key.
-- ?1 namespace, ?2 rows of [queue, instance, definition, version, position], ?3 now, ?4 the length of a lease.
--
-- A hint that waits already stays as it is, and is not written. A delayed one comes at once; one in hand comes again after
-- its settlement. A lease that ends later than any lease can (the clock was turned back) is cut to the length of one.
INSERT INTO latchwork_queue (namespace, queue, instance, definition, version, due, position, failures, again)
SELECT ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, ?3, value ->> 4, 0, 0
FROM json_each(?2)
WHERE true -- parts the upsert from a join
ON CONFLICT (namespace, queue, instance) DO UPDATE SET
    again    = owner IS NOT NULL,
    position = CASE WHEN owner IS NULL THEN excluded.position ELSE position END,
    due      = min(due, CASE WHEN owner IS NULL THEN ?3 ELSE ?3 + ?4 END)
WHERE CASE WHEN owner IS NULL THEN due > ?3 ELSE again = 0 OR due > ?3 + ?4 END
