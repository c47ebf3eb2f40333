//! The writes, as lanes of the file's writer: what is queued at one moment goes into one transaction, with the writes of
//! the store in the same file.

mod claim;
mod enqueue;
mod renew;
mod settle;

pub(crate) use claim::{Claim, Claims};
pub(crate) use enqueue::Enqueues;
pub(crate) use renew::Renewals;
pub(crate) use settle::Settlements;

use crate::error::{PROVIDER, failed};
use latchwork_core::queue::{
    QueueError,
    leased::{Held, LeaseTable, Settled},
};
use latchwork_sqlite_client::{Lane, SqliteError, sqlx};
use std::{collections::HashSet, fmt};

/// The lanes that serve what is in hand.
pub(crate) struct Leases {
    pub(crate) settlements: Lane<Settlements>,
    pub(crate) renewals: Lane<Renewals>,
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").finish_non_exhaustive()
    }
}

impl LeaseTable for Leases {
    type Error = SqliteError;

    const PROVIDER: &'static str = PROVIDER;

    async fn settle(&self, settled: Vec<Settled>) -> Result<bool, SqliteError> {
        self.settlements.submit(settled).await
    }

    async fn renew(&self, held: Vec<Held>) -> Result<HashSet<u64>, SqliteError> {
        self.renewals.submit(held).await
    }

    fn failed(action: String, error: SqliteError) -> QueueError {
        failed(action, error)
    }
}

/// The rows of a statement.
fn json<T: Into<serde_json::Value>>(rows: impl IntoIterator<Item = T>) -> String {
    serde_json::Value::from_iter(rows).to_string()
}

/// What a handler cannot make sense of in its own table.
fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

#[cfg(test)]
mod tests {
    use crate::schema;
    use latchwork_sqlite_client::{
        SchemaMode, SqliteClient, SqliteOptions,
        sqlx::{self, AssertSqlSafe, Row},
    };

    /// What SQLite means to do for a statement, one line for each step.
    async fn plan(sql: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let client = SqliteClient::open(SqliteOptions::new(folder.path().join("q.db"))).await.expect("opened");
        client.migrate(&schema::migrations(), SchemaMode::Migrate).await.expect("migrated");
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
        let mut reader = client.reader().await.expect("a reader");
        let rows = sqlx::query(explain).fetch_all(&mut *reader).await.expect("a plan");
        rows.iter().map(|row| row.get::<String, _>("detail") + "\n").collect()
    }

    #[tokio::test]
    async fn every_statement_of_the_hot_path_is_served_by_an_index() {
        let by_key = "SEARCH latchwork_queue USING PRIMARY KEY (namespace=? AND queue=? AND instance=?)";
        let by_due = "SEARCH latchwork_queue USING COVERING INDEX latchwork_queue_due (namespace=? AND queue=?";
        for (sql, expected) in [
            (include_str!("../statements/claim.sql"), vec![by_key, by_due]),
            (include_str!("../statements/next_due.sql"), vec![by_due]),
            (include_str!("../statements/release.sql"), vec![by_key]),
            (include_str!("../statements/remove.sql"), vec![by_key]),
            (include_str!("../statements/renew.sql"), vec![by_key]),
        ] {
            let plan = plan(sql).await;
            for line in expected {
                assert!(plan.contains(line), "{sql}\n{plan}");
            }
            assert!(!plan.contains("SCAN latchwork_queue") && !plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
        }
    }
}
