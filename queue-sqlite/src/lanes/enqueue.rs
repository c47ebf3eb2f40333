use super::json;
use crate::table::{Table, micros};
use latchwork_core::{
    limits,
    queue::{QueueKind, WorkItem},
};
use latchwork_sqlite_client::{
    WriteBatch,
    sqlx::{self, SqliteConnection},
};
use serde_json::json;

const ENQUEUE: &str = include_str!("../statements/enqueue.sql");

/// Adds hints.
pub(crate) struct Enqueues(pub(crate) Table);

impl WriteBatch for Enqueues {
    type Item = (QueueKind, Vec<WorkItem>);
    type Answer = ();

    async fn run(&self, connection: &mut SqliteConnection, batches: &[Self::Item]) -> Result<Vec<()>, sqlx::Error> {
        let now = self.0.now();
        let hints = batches.iter().flat_map(|(queue, items)| items.iter().map(|item| (*queue, item)));
        let rows = hints.map(|(queue, item)| {
            json!([queue.as_str(), item.instance.as_str(), &*item.definition, item.version, self.0.position(now)])
        });
        let rows: Vec<_> = rows.collect();
        for rows in rows.chunks(limits::STATEMENT_ROWS) {
            sqlx::query(ENQUEUE)
                .bind(self.0.namespace.as_str())
                .bind(json(rows.iter().cloned()))
                .bind(now)
                .bind(micros(self.0.lease))
                .execute(&mut *connection)
                .await?;
        }
        Ok(vec![(); batches.len()])
    }

    fn bytes(&self, (_, items): &Self::Item) -> usize {
        items.len() * 256
    }
}
