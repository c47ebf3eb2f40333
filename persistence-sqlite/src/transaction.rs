//! Steps whose own SQL is committed with their checkpoint.

use crate::{checkpoint, error::store_error, lanes::Setting};
use latchwork_core::{
    async_trait,
    store::{Checkpoint, CheckpointOutcome, StepTransaction, StoreError},
};
use latchwork_sqlite_client::{Outcome, SqliteError, SqliteTransaction};
use std::{any::Any, fmt, sync::Arc};

/// A [`SqliteTransaction`] that ends with a checkpoint.
pub(crate) struct StepInSqlite {
    transaction: SqliteTransaction,
    setting: Setting,
    domain: String,
}

impl fmt::Debug for StepInSqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepInSqlite").field("transaction", &self.transaction).finish_non_exhaustive()
    }
}

impl StepInSqlite {
    pub(crate) fn new(transaction: SqliteTransaction, setting: Setting, domain: String) -> Self {
        Self { transaction, setting, domain }
    }
}

#[async_trait]
impl StepTransaction for StepInSqlite {
    fn as_any(&mut self) -> &mut (dyn Any + Send) {
        &mut self.transaction
    }

    async fn commit(self: Box<Self>, checkpoint: Arc<Checkpoint>) -> CheckpointOutcome {
        let Self { mut transaction, setting, domain } = *self;
        let failed =
            |error: SqliteError| CheckpointOutcome::Failed(store_error(&domain, "commit a step with its checkpoint", error));
        let written = checkpoint::write(&mut transaction, &setting.sql, setting.clock.now(), &[checkpoint]).await;
        match written.map(|mut answers| answers.pop()) {
            Ok(Some(answer @ CheckpointOutcome::Committed(_))) => match transaction.commit().await {
                Ok(()) => answer,
                Err(error) => failed(error),
            },
            Ok(answer) => {
                // A connection that cannot roll back is closed, which does.
                transaction.rollback().await.ok();
                answer.unwrap_or(CheckpointOutcome::Refused { stored: None })
            }
            Err(error) => {
                let error = transaction.error(error).with_outcome(Outcome::NotCommitted);
                transaction.rollback().await.ok();
                failed(error)
            }
        }
    }

    async fn rollback(self: Box<Self>) -> Result<(), StoreError> {
        let Self { transaction, domain, .. } = *self;
        transaction.rollback().await.map_err(|error| store_error(&domain, "roll a step back", error))
    }
}
