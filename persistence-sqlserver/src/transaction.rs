//! Steps whose own SQL is committed with their checkpoint.

use crate::{checkpoint, error::Failure, server::Server};
use latchwork_core::{
    async_trait,
    store::{Checkpoint, CheckpointOutcome, StepTransaction, StoreError},
};
use latchwork_sqlserver_client::SqlServerTransaction;
use std::{any::Any, fmt, sync::Arc};

/// A [`SqlServerTransaction`] that ends with a checkpoint.
pub(crate) struct StepInSqlServer {
    transaction: SqlServerTransaction,
    server: Server,
    domain: Arc<str>,
}

impl fmt::Debug for StepInSqlServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepInSqlServer").field("transaction", &self.transaction).finish_non_exhaustive()
    }
}

impl StepInSqlServer {
    pub(crate) fn new(transaction: SqlServerTransaction, server: Server, domain: Arc<str>) -> Self {
        Self { transaction, server, domain }
    }
}

#[async_trait]
impl StepTransaction for StepInSqlServer {
    fn as_any(&mut self) -> &mut (dyn Any + Send) {
        &mut self.transaction
    }

    async fn commit(self: Box<Self>, checkpoint: Arc<Checkpoint>) -> CheckpointOutcome {
        let Self { mut transaction, server, domain } = *self;
        let failed = |error: Failure| CheckpointOutcome::Failed(error.of(&domain, "commit a step with its checkpoint"));
        let members = [checkpoint];
        let written = async {
            let rows = server.ask_within(&mut transaction, checkpoint::write(&members)?).await?;
            checkpoint::written(&members, rows)
        };
        match written.await.map(|mut answers| answers.pop()) {
            Ok(Some(answer @ CheckpointOutcome::Committed(_))) => match transaction.commit().await {
                Ok(()) => answer,
                Err(error) if error.leaves_the_outcome_open() => {
                    tell(&server, &members, answer).await.unwrap_or_else(|| failed(error.into()))
                }
                Err(error) => failed(error.into()),
            },
            Ok(answer) => {
                // A session that cannot roll back is closed, which does.
                transaction.rollback().await.ok();
                answer.unwrap_or(CheckpointOutcome::Refused { stored: None })
            }
            Err(error) => {
                drop(transaction);
                failed(error)
            }
        }
    }

    async fn rollback(self: Box<Self>) -> Result<(), StoreError> {
        let Self { transaction, domain, .. } = *self;
        transaction.rollback().await.map_err(|error| Failure::from(error).of(&domain, "roll a step back"))
    }
}

/// What became of a step whose session was lost at the commit: `answer` when its checkpoint is there.
async fn tell(server: &Server, members: &[Arc<Checkpoint>], answer: CheckpointOutcome) -> Option<CheckpointOutcome> {
    let checkpoint = members.first()?;
    let rows = server.ask(crate::load::fence_of(&checkpoint.instance)).await.ok()?;
    let fence = crate::load::fence(rows).ok()?;
    match fence.map(|fence| (fence, fence.tells_of(checkpoint))) {
        Some((_, Some(true))) => Some(answer),
        Some((fence, Some(false))) => Some(CheckpointOutcome::Refused { stored: Some(fence.revision) }),
        // Its own SQL was rolled back, so that the checkpoint cannot be tried again by itself.
        Some((_, None)) => None,
        None => Some(CheckpointOutcome::Refused { stored: None }),
    }
}
