-- Gives back what was nacked or dropped, and what was acknowledged after its like arrived. Served by the primary key;
-- materialized, the rows lead, where SQLite would else walk the table for each of them.
-- ?1 namespace, ?2 rows of [queue, instance, claim, outcome, delay, position], ?3 now, ?4 owner.
-- Outcomes: 0 acknowledged, 1 nacked, 2 dropped. A hint that arrived in hand does not wait for the delay.
WITH settled AS MATERIALIZED (
    SELECT
        value ->> 0 AS queue,
        value ->> 1 AS instance,
        value ->> 2 AS claim,
        value ->> 3 AS outcome,
        value ->> 4 AS delay,
        value ->> 5 AS position
    FROM json_each(?2)
)
UPDATE latchwork_queue SET
    due      = ?3 + CASE WHEN again THEN 0 ELSE settled.delay END,
    position = settled.position,
    failures = CASE settled.outcome WHEN 0 THEN 0 WHEN 1 THEN failures ELSE failures + 1 END,
    owner    = NULL,
    claim    = NULL,
    again    = 0
FROM settled
WHERE latchwork_queue.namespace = ?1
    AND latchwork_queue.queue = settled.queue
    AND latchwork_queue.instance = settled.instance
    AND latchwork_queue.owner = ?4
    AND latchwork_queue.claim = settled.claim
    AND (settled.outcome <> 0 OR latchwork_queue.again)
