-- Counts what waits (delayed hints and ended leases included) and what is in hand, and finds the oldest that waits.
-- Reads all hints of the queue, by the primary key.
-- ?1 namespace, ?2 queue, ?3 now.
SELECT
    count(*) FILTER (WHERE owner IS NULL OR due <= ?3),
    count(*) FILTER (WHERE owner IS NOT NULL AND due > ?3),
    min(due) FILTER (WHERE due <= ?3)
FROM latchwork_queue
WHERE namespace = ?1 AND queue = ?2
