-- When the next hint may be taken. Served by latchwork_queue_due alone.
-- ?1 namespace, ?2 queue.
SELECT due FROM latchwork_queue WHERE namespace = ?1 AND queue = ?2 ORDER BY due LIMIT 1
