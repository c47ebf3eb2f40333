//! Messages for the owners of instances.

use crate::{
    error::unwritable,
    record::{inbox_columns, instance_id, micros, status, work_item},
    rows::Rows,
    sql::Sql,
};
use latchwork_core::{
    clock::Timestamp,
    queue::WorkItem,
    store::{AppendOutcome, Control, InstanceId, WorkflowStatus},
};
use latchwork_sqlite_client::sqlx::{self, SqliteConnection};
use std::collections::HashMap;

/// Where these instances (`?1`: id) stand, or stood. By the unique index of the id, and the primary key of the tombstones.
pub(crate) const TARGETS: &str = "
    SELECT i.id, i.n, i.definition, i.version, i.status
    FROM jsonb_each(?1) AS r
    CROSS JOIN latchwork_instance AS i ON i.id = r.value ->> 0
    UNION ALL
    SELECT t.id, NULL, t.definition, 0, t.status
    FROM jsonb_each(?1) AS r
    CROSS JOIN latchwork_tombstone AS t ON t.id = r.value ->> 0";

/// Messages: n, JSON.
pub(crate) const APPEND: &str = "
    INSERT INTO latchwork_inbox (n, visible, control)
    SELECT r.value ->> 0, ?2, r.value ->> 1
    FROM jsonb_each(?1) AS r";

/// The visible rows of instances (`?1`: n). By `latchwork_inbox_wait`.
pub(crate) const READ: &str = concat!(
    "SELECT ",
    inbox_columns!(),
    " FROM jsonb_each(?1) AS r
    CROSS JOIN latchwork_inbox AS m ON m.n = r.value ->> 0
    LEFT JOIN latchwork_event AS e ON e.number = m.event
    WHERE m.visible <= ?2
    ORDER BY m.id"
);

/// The visible rows of instances (`?1`: id). By the unique index of the id and `latchwork_inbox_wait`.
pub(crate) const READ_BY_ID: &str = concat!(
    "SELECT ",
    inbox_columns!(),
    " FROM jsonb_each(?1) AS r
    CROSS JOIN latchwork_instance AS i ON i.id = r.value ->> 0
    CROSS JOIN latchwork_inbox AS m ON m.n = i.n
    LEFT JOIN latchwork_event AS e ON e.number = m.event
    WHERE m.visible <= ?2
    ORDER BY m.id"
);

/// The numbers of instances (`?1`: id). By the unique index of the id.
pub(crate) const NUMBERS: &str = "
    SELECT i.id, i.n
    FROM jsonb_each(?1) AS r
    CROSS JOIN latchwork_instance AS i ON i.id = r.value ->> 0";

/// Appends messages, each with its own answer.
pub(crate) async fn append(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    messages: &[(&InstanceId, &Control)],
) -> Result<Vec<AppendOutcome>, sqlx::Error> {
    let now = micros(now);
    let mut ids = Rows::default();
    for (id, _) in messages {
        ids.add(|row| {
            row.id(id);
        });
    }
    let mut targets: HashMap<InstanceId, (WorkflowStatus, Option<(i64, WorkItem)>)> = HashMap::new();
    let found: Vec<(String, Option<i64>, String, i64, String)> = ids.fetch(connection, sql, TARGETS, now).await?;
    for (id, n, definition, version, stored) in found {
        let item = n.map(|n| work_item(&id, definition, version).map(|item| (n, item))).transpose()?;
        targets.insert(instance_id(&id)?, (status(&stored)?, item));
    }
    let mut rows = Rows::default();
    let mut answers = Vec::with_capacity(messages.len());
    for (id, control) in messages {
        answers.push(match targets.get(*id) {
            None => AppendOutcome::Unknown,
            Some((status, Some((n, item)))) if !status.is_terminal() => {
                let json = serde_json::to_string(control).map_err(unwritable)?;
                rows.add(|row| {
                    row.int(*n).text(&json);
                });
                AppendOutcome::Appended(item.clone())
            }
            Some((status, _)) => AppendOutcome::Ended(*status),
        });
    }
    rows.execute(connection, sql, APPEND, now).await?;
    Ok(answers)
}
