//! The lanes of the writer: what is written often, so that all that is queued is written together.

use crate::{checkpoint, create, event, inbox, sql::Sql};
use latchwork_core::{
    clock::Clock,
    limits::{GROUP_BYTES, GROUP_CHECKPOINTS},
    queue::WorkItem,
    store::{AppendOutcome, Checkpoint, CheckpointOutcome, Control, CreateOutcome, InstanceId, NewEvent, NewInstance},
};
use latchwork_sqlite_client::{WriteBatch, sqlx};
use sqlx::SqliteConnection;
use std::sync::Arc;

/// What every statement needs: the names of the tables, and the time.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) sql: Sql,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Checkpoints.
#[derive(Debug)]
pub(crate) struct Checkpoints(pub(crate) Setting);

impl WriteBatch for Checkpoints {
    type Item = Arc<Checkpoint>;
    type Answer = CheckpointOutcome;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        items: &[Arc<Checkpoint>],
    ) -> Result<Vec<CheckpointOutcome>, sqlx::Error> {
        checkpoint::write(connection, &self.0.sql, self.0.clock.now(), items).await
    }

    fn bytes(&self, item: &Arc<Checkpoint>) -> usize {
        item.weight()
    }

    fn max_items(&self) -> usize {
        GROUP_CHECKPOINTS
    }

    fn max_bytes(&self) -> usize {
        GROUP_BYTES
    }
}

/// Calls of create.
#[derive(Debug)]
pub(crate) struct Creates(pub(crate) Setting);

impl WriteBatch for Creates {
    type Item = Vec<NewInstance>;
    type Answer = Vec<CreateOutcome>;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        items: &[Vec<NewInstance>],
    ) -> Result<Vec<Vec<CreateOutcome>>, sqlx::Error> {
        let all: Vec<&NewInstance> = items.iter().flatten().collect();
        let mut answers = create::create(connection, &self.0.sql, self.0.clock.now(), &all).await?.into_iter();
        Ok(items.iter().map(|call| answers.by_ref().take(call.len()).map(|created| created.outcome).collect()).collect())
    }

    fn bytes(&self, item: &Vec<NewInstance>) -> usize {
        item.iter().map(|instance| 512 + instance.data.as_str().len()).sum()
    }
}

/// Calls of publish.
#[derive(Debug)]
pub(crate) struct Publishes(pub(crate) Setting);

impl WriteBatch for Publishes {
    type Item = Vec<NewEvent>;
    type Answer = Vec<WorkItem>;

    async fn run(&self, connection: &mut SqliteConnection, items: &[Vec<NewEvent>]) -> Result<Vec<Vec<WorkItem>>, sqlx::Error> {
        event::publish(connection, &self.0.sql, self.0.clock.now(), items).await
    }

    fn bytes(&self, item: &Vec<NewEvent>) -> usize {
        item.iter().map(|event| 256 + event.data.as_ref().map_or(0, |data| data.as_str().len())).sum()
    }
}

/// Calls of append.
#[derive(Debug)]
pub(crate) struct Appends(pub(crate) Setting);

impl WriteBatch for Appends {
    type Item = Vec<(InstanceId, Control)>;
    type Answer = Vec<AppendOutcome>;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        items: &[Vec<(InstanceId, Control)>],
    ) -> Result<Vec<Vec<AppendOutcome>>, sqlx::Error> {
        let all: Vec<(&InstanceId, &Control)> = items.iter().flatten().map(|(id, control)| (id, control)).collect();
        let mut answers = inbox::append(connection, &self.0.sql, self.0.clock.now(), &all).await?.into_iter();
        Ok(items.iter().map(|call| answers.by_ref().take(call.len()).collect()).collect())
    }
}
