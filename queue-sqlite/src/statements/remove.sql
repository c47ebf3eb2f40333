-- Removes what was acknowledged. Runs after the release, which has taken its owner from every row that stays.
-- Served by the primary key.
-- ?1 namespace, ?2 rows of [queue, instance, claim, outcome, delay, position], ?3 owner.
DELETE FROM latchwork_queue
WHERE (namespace, queue, instance, owner, claim) IN (
    SELECT ?1, value ->> 0, value ->> 1, ?3, value ->> 2 FROM json_each(?2) WHERE value ->> 3 = 0
)
