-- Hands out hints: those that wait and are due, and those whose lease has ended.
-- Found by latchwork_queue_due alone, in order; written by the primary key.
-- ?1 namespace, ?2 queue, ?3 now, ?4 the end of the lease, ?5 the most rows, ?6 owner, ?7 claim.
UPDATE latchwork_queue SET
    due      = ?4,
    failures = failures + (owner IS NOT NULL),
    owner    = ?6,
    claim    = ?7,
    again    = 0
WHERE namespace = ?1 AND queue = ?2 AND instance IN (
    SELECT instance FROM latchwork_queue
    WHERE namespace = ?1 AND queue = ?2 AND due <= ?3
    ORDER BY due, position
    LIMIT ?5
)
RETURNING instance, definition, version, failures, position
