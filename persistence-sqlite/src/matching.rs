//! Matching events to waits.
//!
//! The writer is alone, so there is no channel to lock: what is inserted before is seen here. Each open, unmatched wait gets the
//! earliest event, by (time, number), with `time >= as_of` that its slot has neither consumed nor been matched to; of the waits
//! of one slot the oldest chooses first.

use crate::{rows::Rows, sql::Sql};
use latchwork_sqlite_client::sqlx::{self, SqliteConnection};
use std::collections::{BTreeMap, BTreeSet};

/// A wait slot of an instance.
pub(crate) type Slot = (i64, String);

/// What a match looks for, for the wait of this alias. The event is found by `latchwork_event_channel`; what the slot had by the
/// primary key of `latchwork_consumed` and by `latchwork_inbox_wait`.
macro_rules! earliest_event {
    ($wait:literal) => {
        concat!(
            "(
            SELECT e.number
            FROM latchwork_event AS e
            WHERE e.name = ",
            $wait,
            ".name AND e.key = ",
            $wait,
            ".key AND e.time >= ",
            $wait,
            ".as_of
                AND NOT EXISTS (
                    SELECT 1
                    FROM latchwork_consumed AS c
                    WHERE c.n = ",
            $wait,
            ".n AND c.slot = ",
            $wait,
            ".slot AND c.event = e.id
                )
                AND NOT EXISTS (
                    SELECT 1
                    FROM latchwork_inbox AS m
                    WHERE m.n = ",
            $wait,
            ".n AND m.slot = ",
            $wait,
            ".slot AND m.event = e.number
                )
            ORDER BY e.time, e.number
            LIMIT 1
        )"
        )
    };
}

/// The unmatched waits of slots (`?1`: n, slot), with their events. By `latchwork_subscription_slot`.
pub(crate) const OF_SLOTS: &str = concat!(
    "WITH wait AS MATERIALIZED (
        SELECT s.n, s.id, s.slot, s.sequence, ",
    earliest_event!("s"),
    " AS event
        FROM jsonb_each(?1) AS r
        CROSS JOIN latchwork_subscription AS s ON s.n = r.value ->> 0 AND s.slot = r.value ->> 1
        WHERE NOT EXISTS (SELECT 1 FROM latchwork_inbox AS m WHERE m.n = s.n AND m.subscription = s.id)
    )
    SELECT w.n, w.id, w.slot, w.event, e.time
    FROM wait AS w CROSS JOIN latchwork_event AS e ON e.number = w.event
    ORDER BY w.n, w.slot, w.sequence, w.id"
);

/// The unmatched waits for events (`?1`: number), with their events. By `latchwork_subscription_channel`.
pub(crate) const OF_EVENTS: &str = concat!(
    "WITH wait AS MATERIALIZED (
        SELECT wanted.n, wanted.id, wanted.slot, wanted.sequence, ",
    earliest_event!("wanted"),
    " AS event
        FROM (
            SELECT DISTINCT s.n, s.id, s.name, s.key, s.slot, s.as_of, s.sequence
            FROM jsonb_each(?1) AS r
            CROSS JOIN latchwork_event AS p ON p.number = r.value ->> 0
            CROSS JOIN latchwork_subscription AS s ON s.name = p.name AND s.key = p.key AND s.as_of <= p.time
        ) AS wanted
        WHERE NOT EXISTS (SELECT 1 FROM latchwork_inbox AS m WHERE m.n = wanted.n AND m.subscription = wanted.id)
    )
    SELECT w.n, w.id, w.slot, w.event, e.time
    FROM wait AS w CROSS JOIN latchwork_event AS e ON e.number = w.event
    ORDER BY w.n, w.slot, w.sequence, w.id"
);

/// Takes future matches back which an event of `?1` (number) comes before. Usually there are none at all, which
/// `latchwork_inbox_visible` tells at once.
pub(crate) const GIVE_WAY_TO_EVENTS: &str = "
    DELETE FROM latchwork_inbox
    WHERE EXISTS (SELECT 1 FROM latchwork_inbox WHERE visible > ?2)
        AND id IN (
            SELECT m.id
            FROM jsonb_each(?1) AS r
            CROSS JOIN latchwork_event AS e ON e.number = r.value ->> 0
            CROSS JOIN latchwork_subscription AS s ON s.name = e.name AND s.key = e.key AND s.as_of <= e.time
            CROSS JOIN latchwork_inbox AS m ON m.n = s.n AND m.subscription = s.id
            CROSS JOIN latchwork_event AS f ON f.number = m.event
            WHERE m.visible > ?2 AND (f.time, f.number) > (e.time, e.number)
        )";

/// Takes all future matches of slots (`?1`: n, slot) back, to be made anew. By `latchwork_inbox_wait`.
pub(crate) const GIVE_WAY_IN_SLOTS: &str = "
    DELETE FROM latchwork_inbox
    WHERE id IN (
        SELECT m.id
        FROM jsonb_each(?1) AS r
        CROSS JOIN latchwork_inbox AS m ON m.n = r.value ->> 0 AND m.slot = r.value ->> 1
        WHERE m.visible > ?2
    )";

/// Writes matches: n, visible, wait, slot, event.
pub(crate) const MATCH: &str = "
    INSERT INTO latchwork_inbox (n, visible, subscription, slot, event)
    SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4
    FROM jsonb_each(?1) AS r";

/// A wait that can be matched: n, wait, slot, event, time.
type Candidate = (i64, String, String, i64, i64);

/// Matches after waits of `slots` were added, or lost or may have lost their match, and after events of these numbers were added.
/// `freed` are slots that got an event back.
pub(crate) async fn run(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: i64,
    slots: &BTreeSet<Slot>,
    freed: &BTreeSet<Slot>,
    events: &[i64],
) -> Result<(), sqlx::Error> {
    if !freed.is_empty() {
        slot_rows(freed).execute(connection, sql, GIVE_WAY_IN_SLOTS, now).await?;
    }
    let mut again: BTreeSet<Slot> = slots.union(freed).cloned().collect();
    if !events.is_empty() {
        event_rows(events).execute(connection, sql, GIVE_WAY_TO_EVENTS, now).await?;
        let candidates = event_rows(events).fetch(connection, sql, OF_EVENTS, now).await?;
        again.extend(write(connection, sql, now, candidates).await?);
    }
    // Each round matches at least one wait of each slot that comes again, so this ends.
    while !again.is_empty() {
        let candidates = slot_rows(&again).fetch(connection, sql, OF_SLOTS, now).await?;
        again = write(connection, sql, now, candidates).await?;
    }
    Ok(())
}

fn slot_rows(slots: &BTreeSet<Slot>) -> Rows {
    let mut rows = Rows::default();
    for (n, slot) in slots {
        rows.add(|row| {
            row.int(*n).text(slot);
        });
    }
    rows
}

fn event_rows(events: &[i64]) -> Rows {
    let mut rows = Rows::default();
    for event in events {
        rows.add(|row| {
            row.int(*event);
        });
    }
    rows
}

/// Writes the matches, and gives the slots in which a wait has to choose again, since an older one took its event.
async fn write(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: i64,
    candidates: Vec<Candidate>,
) -> Result<BTreeSet<Slot>, sqlx::Error> {
    let mut again = BTreeSet::new();
    let mut taken: BTreeMap<(i64, &str), BTreeSet<i64>> = BTreeMap::new();
    let mut matches = Vec::new();
    for (n, wait, slot, event, time) in &candidates {
        if taken.entry((*n, slot)).or_default().insert(*event) {
            matches.push((*time, *event, *n, wait, slot));
        } else {
            again.insert((*n, slot.clone()));
        }
    }
    // So that ids ascend with the events.
    matches.sort_unstable();
    let mut rows = Rows::default();
    for (time, event, n, wait, slot) in matches {
        rows.add(|row| {
            row.int(n).int(time.max(now)).text(wait).text(slot).int(event);
        });
    }
    rows.execute(connection, sql, MATCH, now).await?;
    Ok(again)
}
