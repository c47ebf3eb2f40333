use super::unreadable;
use crate::table::Table;
use latchwork_core::queue::{
    QueueKind, WorkItem,
    leased::{Claimed, ClaimedHint, GiveBack},
};
use latchwork_sqlite_client::{
    WriteBatch,
    sqlx::{self, SqliteConnection},
};
use std::sync::atomic::{AtomicI64, Ordering};

const CLAIM: &str = include_str!("../statements/claim.sql");

/// Asks for up to `max` hints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) queue: QueueKind,
    pub(crate) max: usize,
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
            Ok(ClaimedHint::new(WorkItem::new(instance, definition, version), failures, position))
        });
        let hints = rows.collect::<Result<Vec<_>, sqlx::Error>>()?;
        Ok(Claimed::new(asked.queue, claim, since, hints, self.back.clone()))
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
