use super::json;
use crate::table::{Table, micros};
use latchwork_core::{limits, queue::leased::Settled};
use latchwork_sqlite_client::{
    WriteBatch,
    sqlx::{self, SqliteConnection},
};
use serde_json::json;

const RELEASE: &str = include_str!("../statements/release.sql");
const REMOVE: &str = include_str!("../statements/remove.sql");

/// Settles deliveries. Those that were handed to somebody else meanwhile are left alone.
pub(crate) struct Settlements(pub(crate) Table);

impl WriteBatch for Settlements {
    type Item = Vec<Settled>;
    /// Whether a hint waits again.
    type Answer = bool;

    async fn run(&self, connection: &mut SqliteConnection, batches: &[Vec<Settled>]) -> Result<Vec<bool>, sqlx::Error> {
        let now = self.0.now();
        let rows = batches.iter().flatten().map(|settled| {
            let (outcome, delay) = settled.code();
            // Held to what a timestamp can be, so that the sum in the statement is none beyond it.
            let delay = micros(delay).min(Table::after(now, delay).saturating_sub(now));
            json!([settled.queue.as_str(), settled.instance.as_str(), settled.claim, outcome, delay, self.0.position(now)])
        });
        let rows: Vec<_> = rows.collect();
        let mut released = 0;
        for rows in rows.chunks(limits::STATEMENT_ROWS) {
            let rows = json(rows.iter().cloned());
            released += sqlx::query(RELEASE)
                .bind(self.0.namespace.as_str())
                .bind(&rows)
                .bind(now)
                .bind(&*self.0.owner)
                .execute(&mut *connection)
                .await?
                .rows_affected();
            sqlx::query(REMOVE)
                .bind(self.0.namespace.as_str())
                .bind(&rows)
                .bind(&*self.0.owner)
                .execute(&mut *connection)
                .await?;
        }
        Ok(vec![released > 0; batches.len()])
    }

    fn bytes(&self, settled: &Vec<Settled>) -> usize {
        settled.len() * 128
    }
}
