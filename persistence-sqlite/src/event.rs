//! Publishing events.

use crate::{
    matching,
    record::{micros, work_item},
    rows::Rows,
    sql::Sql,
};
use latchwork_core::{
    clock::{Timestamp, whole_micros},
    queue::WorkItem,
    store::NewEvent,
};
use latchwork_sqlite_client::sqlx::{self, SqliteConnection};
use std::collections::BTreeSet;

/// New events: id, name, key, time, data. Those whose id is known are left. Gives the numbers of the new ones.
pub(crate) const INSERT: &str = "
    INSERT INTO latchwork_event (id, name, key, time, data)
    SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4
    FROM jsonb_each(?1) AS r
    WHERE true
    ON CONFLICT (id) DO NOTHING
    RETURNING number";

/// The instances that have one of these events (`?1`: id) in their inbox, visible. By the unique index of the id and
/// `latchwork_inbox_event`.
pub(crate) const WAKE: &str = "
    SELECT r.key, i.id, i.definition, i.version
    FROM jsonb_each(?1) AS r
    CROSS JOIN latchwork_event AS e ON e.id = r.value ->> 0
    CROSS JOIN latchwork_inbox AS m ON m.event = e.number
    CROSS JOIN latchwork_instance AS i ON i.n = m.n
    WHERE m.visible <= ?2";

/// Adds events; gives the numbers of those that are new. They are not matched yet.
pub(crate) async fn insert<'a>(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    events: impl Iterator<Item = &'a NewEvent>,
) -> Result<Vec<i64>, sqlx::Error> {
    let mut rows = Rows::default();
    for event in events {
        rows.add(|row| {
            row.id(&event.id)
                .text(&event.name)
                .text(&event.key)
                .int(micros(event.time.map_or(now, whole_micros)))
                .opt_text(event.data.as_ref().map(latchwork_core::store::Encoded::as_str));
        });
    }
    let numbers: Vec<(i64,)> = rows.fetch(connection, sql, INSERT, micros(now)).await?;
    Ok(numbers.into_iter().map(|(number,)| number).collect())
}

/// For each of these events the instances that have it in their inbox now.
pub(crate) async fn wake(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    events: &[&NewEvent],
) -> Result<Vec<Vec<WorkItem>>, sqlx::Error> {
    let mut wake: Vec<Vec<WorkItem>> = events.iter().map(|_| Vec::new()).collect();
    let batches = events.chunks(latchwork_core::limits::STATEMENT_ROWS);
    let mut answers = wake.chunks_mut(latchwork_core::limits::STATEMENT_ROWS);
    for batch in batches {
        let mut rows = Rows::default();
        for event in batch {
            rows.add(|row| {
                row.id(&event.id);
            });
        }
        let found: Vec<(i64, String, String, i64)> = rows.fetch(connection, sql, WAKE, micros(now)).await?;
        let Some(answers) = answers.next() else { break };
        for (at, id, definition, version) in found {
            if let Some(items) = usize::try_from(at).ok().and_then(|at| answers.get_mut(at)) {
                items.push(work_item(&id, definition, version)?);
            }
        }
    }
    Ok(wake)
}

/// Publishes the events of several calls, and gives each call whom it wakes.
pub(crate) async fn publish(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    calls: &[Vec<NewEvent>],
) -> Result<Vec<Vec<WorkItem>>, sqlx::Error> {
    let numbers = insert(connection, sql, now, calls.iter().flatten()).await?;
    matching::run(connection, sql, micros(now), &BTreeSet::new(), &BTreeSet::new(), &numbers).await?;
    let events: Vec<&NewEvent> = calls.iter().flatten().collect();
    let mut woken = wake(connection, sql, now, &events).await?.into_iter();
    let mut answers = Vec::with_capacity(calls.len());
    for call in calls {
        let mut seen = BTreeSet::new();
        let mut items: Vec<WorkItem> = woken.by_ref().take(call.len()).flatten().collect();
        items.retain(|item| seen.insert(item.instance.clone()));
        answers.push(items);
    }
    Ok(answers)
}
