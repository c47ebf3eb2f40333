//! What the tests of the file share.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

use latchwork_core::store::{
    Checkpoint, CheckpointId, CheckpointOutcome, CreateOutcome, Due, Encoded, HeaderUpdate, InstanceId, NewInstance,
    PersistenceProvider, PointerId, PointerRecord, Revision, SchemaMode, WorkflowStatus,
};
use latchwork_persistence_sqlite::{SqliteOptions, SqliteStore};
use std::{path::Path, sync::Arc};

pub(crate) async fn open(options: SqliteOptions) -> SqliteStore {
    let url = format!("sqlite:{}", options.path().display());
    let store = SqliteStore::connect(&url).await.expect("the file opens");
    store.prepare(SchemaMode::Migrate).await.expect("the schema is made");
    store
}

pub(crate) async fn open_at(path: &Path) -> SqliteStore {
    open(SqliteOptions::new(path)).await
}

/// Creates so many instances; gives their ids.
pub(crate) async fn create(store: &SqliteStore, count: usize) -> Vec<InstanceId> {
    let new: Vec<_> = (0..count).map(|_| NewInstance::new("order", 1, "shape", Encoded::from_json("0"))).collect();
    let answers = store.create(&new).await.expect("created");
    assert!(answers.iter().all(|answer| *answer == CreateOutcome::Created));
    new.into_iter().map(|new| new.id).collect()
}

pub(crate) fn pointer(sequence: i64) -> PointerRecord {
    PointerRecord::new(PointerId::derive(&[&sequence.to_le_bytes()]), sequence, format!("step {sequence}"))
}

/// The checkpoint that follows this revision. Its data is the revision that it makes, and it adds the pointer of that number.
pub(crate) fn checkpoint(instance: &InstanceId, revision: Revision) -> Checkpoint {
    let header = HeaderUpdate { status: WorkflowStatus::Runnable, reason: None, due: Due::Keep, fault_count: 0 };
    let id = CheckpointId { burst: 1, number: u64::try_from(revision.0).unwrap_or_default() };
    let mut checkpoint = Checkpoint::new(instance.clone(), id, revision, header);
    checkpoint.data = Some(Encoded::from_json(revision.next().to_string()));
    checkpoint.pointers = vec![pointer(revision.0)];
    checkpoint
}

pub(crate) async fn commit(store: &SqliteStore, checkpoint: Checkpoint) -> CheckpointOutcome {
    store.commit(vec![Arc::new(checkpoint)]).await.pop().expect("an answer")
}

/// The revision that a checkpoint made, which must have been committed.
pub(crate) fn committed(outcome: &CheckpointOutcome) -> Revision {
    match outcome {
        CheckpointOutcome::Committed(committed) => committed.revision,
        other => panic!("not committed: {other:?}"),
    }
}
