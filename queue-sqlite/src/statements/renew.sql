-- Renews leases, also one that has ended and was given to nobody yet. Served by the primary key.
-- ?1 namespace, ?2 rows of [queue, instance, claim], ?3 the end of the lease, ?4 owner.
UPDATE latchwork_queue SET due = ?3
WHERE (namespace, queue, instance, owner, claim) IN (
    SELECT ?1, value ->> 0, value ->> 1, ?4, value ->> 2 FROM json_each(?2)
)
RETURNING instance, claim
