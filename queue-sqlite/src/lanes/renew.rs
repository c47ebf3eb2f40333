use super::json;
use crate::table::Table;
use latchwork_core::{limits, queue::leased::Held};
use latchwork_sqlite_client::{
    WriteBatch,
    sqlx::{self, SqliteConnection},
};
use serde_json::json;
use std::collections::HashSet;

const RENEW: &str = include_str!("../statements/renew.sql");

/// Renews leases.
pub(crate) struct Renewals(pub(crate) Table);

impl WriteBatch for Renewals {
    type Item = Vec<Held>;
    /// The keys of those that are held still.
    type Answer = HashSet<u64>;

    async fn run(&self, connection: &mut SqliteConnection, batches: &[Vec<Held>]) -> Result<Vec<HashSet<u64>>, sqlx::Error> {
        let end = Table::after(self.0.now(), self.0.lease);
        let mut answers = Vec::with_capacity(batches.len());
        for batch in batches {
            let mut renewed = HashSet::new();
            for part in batch.chunks(limits::STATEMENT_ROWS) {
                let rows = json(part.iter().map(|held| json!([held.queue.as_str(), held.instance.as_str(), held.claim])));
                let found: Vec<(String, i64)> = sqlx::query_as(RENEW)
                    .bind(self.0.namespace.as_str())
                    .bind(rows)
                    .bind(end)
                    .bind(&*self.0.owner)
                    .fetch_all(&mut *connection)
                    .await?;
                let found: HashSet<(&str, i64)> = found.iter().map(|(instance, claim)| (instance.as_str(), *claim)).collect();
                let kept = part.iter().filter(|held| found.contains(&(held.instance.as_str(), held.claim)));
                renewed.extend(kept.map(|held| held.key));
            }
            answers.push(renewed);
        }
        Ok(answers)
    }

    fn bytes(&self, batch: &Vec<Held>) -> usize {
        batch.len() * 64
    }
}
