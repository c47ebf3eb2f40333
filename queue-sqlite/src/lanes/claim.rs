use super::unreadable;
use crate::{hand::GiveBack, table::Table};
use latchwork_core::queue::{QueueKind, WorkItem};
use latchwork_sqlite_client::{
    WriteBatch,
    sqlx::{self, SqliteConnection},
};
use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

const CLAIM: &str = include_str!("../statements/claim.sql");

/// Asks for up to `max` hints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) queue: QueueKind,
    pub(crate) max: usize,
}

/// Hints in the hands of this queue, and of nobody in particular yet. Dropped, they are given back: the one who asked for
/// them stopped waiting.
#[derive(Debug)]
pub(crate) struct Claimed {
    queue: QueueKind,
    claim: i64,
    /// When the lease began, by the monotonic clock.
    since: Duration,
    rows: Vec<Row>,
    back: GiveBack,
}

#[derive(Debug)]
struct Row {
    item: WorkItem,
    failures: u32,
    position: i64,
}

impl Claimed {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Makes a delivery of each: from `(item, attempt, claim, since)`.
    pub(crate) fn into_deliveries<D>(mut self, mut make: impl FnMut(WorkItem, u32, i64, Duration) -> D) -> Vec<D> {
        let rows = std::mem::take(&mut self.rows);
        rows.into_iter().map(|row| make(row.item, row.failures.saturating_add(1), self.claim, self.since)).collect()
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let instances = self.rows.drain(..).map(|row| row.item.instance);
        self.back.give_back(self.queue, self.claim, instances);
    }
}

/// Hands out hints.
pub(crate) struct Claims {
    table: Table,
    back: GiveBack,
    /// Numbers the claims. A claim that is tried again after a rollback is another one, so that what was dropped with the
    /// first try gives nothing back of the second.
    next: AtomicI64,
}

impl Claims {
    pub(crate) fn new(table: Table, back: GiveBack) -> Self {
        Self { table, back, next: AtomicI64::new(1) }
    }

    async fn claim(&self, connection: &mut SqliteConnection, asked: Claim) -> Result<Claimed, sqlx::Error> {
        let claim = self.next.fetch_add(1, Ordering::Relaxed);
        let (now, since) = (self.table.now(), self.table.clock.monotonic());
        let rows: Vec<(String, String, u32, u32, i64)> = sqlx::query_as(CLAIM)
            .bind(self.table.namespace.as_str())
            .bind(asked.queue.as_str())
            .bind(now)
            .bind(Table::after(now, self.table.lease))
            .bind(i64::try_from(asked.max).unwrap_or(i64::MAX))
            .bind(&*self.table.owner)
            .bind(claim)
            .fetch_all(connection)
            .await?;
        let rows = rows.into_iter().map(|(instance, definition, version, failures, position)| {
            let instance = instance.parse().map_err(unreadable)?;
            Ok(Row { item: WorkItem::new(instance, definition, version), failures, position })
        });
        let mut rows = rows.collect::<Result<Vec<_>, sqlx::Error>>()?;
        // The statement takes them in order, and returns them in any.
        rows.sort_unstable_by_key(|row| row.position);
        Ok(Claimed { queue: asked.queue, claim, since, rows, back: self.back.clone() })
    }
}

impl WriteBatch for Claims {
    type Item = Claim;
    type Answer = Claimed;

    async fn run(&self, connection: &mut SqliteConnection, claims: &[Claim]) -> Result<Vec<Claimed>, sqlx::Error> {
        let mut answers = Vec::with_capacity(claims.len());
        for asked in claims {
            answers.push(self.claim(connection, *asked).await?);
        }
        Ok(answers)
    }
}
