//! What the cases are written with.

use super::{StoreFixture, case::Stop};
use crate::clock::VirtualClock;
use latchwork_core::{
    BoxError,
    clock::{Timestamp, add},
    store::{
        Checkpoint, CheckpointId, CheckpointOutcome, Committed, Control, Due, Encoded, EventId, HeaderUpdate, InboxMessage,
        InboxRow, InstanceId, LoadedInstance, NewEvent, NewInstance, PersistenceProvider, PointerId, PointerRecord, Revision,
        RunnableItem, RunnableQuery, SchemaMode, Subscription, SubscriptionId, WorkflowStatus,
    },
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A store as a node has it.
pub(super) type Store = Arc<dyn PersistenceProvider>;

/// Longest the nodes may take to stop after a case.
const STOP: Duration = Duration::from_secs(10);

/// Fails the case unless the condition holds.
macro_rules! check {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::store::case::Stop::Failed(format!($($what)+)));
        }
    };
}

/// Fails the case unless both are equal.
macro_rules! check_eq {
    ($found:expr, $expected:expr, $($what:tt)+) => {
        match (&$found, &$expected) {
            (found, expected) => check!(
                found == expected,
                "{}: expected {expected:?}, found {found:?}", format_args!($($what)+)
            ),
        }
    };
}

/// Fails the case unless the value has this shape; gives what the shape binds.
macro_rules! check_matches {
    ($found:expr, $shape:pat => $value:expr, $($what:tt)+) => {
        match $found {
            $shape => $value,
            found => return Err($crate::store::case::Stop::Failed(format!(
                "{}: expected {}, found {found:?}", format_args!($($what)+), stringify!($shape)
            ))),
        }
    };
}

pub(super) use {check, check_eq, check_matches};

/// Two nodes on one store, and what the fixture offers beside.
pub(super) struct Nodes {
    pub(super) one: Store,
    pub(super) other: Store,
    pub(super) fixture: Box<dyn StoreFixture>,
    clock: Option<VirtualClock>,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("one", &self.one).field("other", &self.other).finish_non_exhaustive()
    }
}

impl Nodes {
    pub(super) async fn open(fixture: Box<dyn StoreFixture>) -> Result<Self, BoxError> {
        let one = fixture.open().await?;
        one.prepare(SchemaMode::Migrate).await?;
        let other = fixture.open().await?;
        other.prepare(SchemaMode::Migrate).await?;
        let clock = fixture.clock();
        Ok(Self { one, other, fixture, clock })
    }

    pub(super) async fn stop(self) {
        for node in [&self.one, &self.other] {
            // The case's own finding says more than a failed clean-up.
            let _ = tokio::time::timeout(STOP, node.stop(STOP)).await;
        }
        if let Ok(Err(error)) = tokio::time::timeout(STOP, self.fixture.remove()).await {
            println!("the store could not be removed: {error}");
        }
    }

    /// A short span for this store's clock: far longer than a few calls take.
    pub(super) fn span(&self) -> Duration {
        if self.clock.is_some() { Duration::from_secs(60) } else { self.fixture.span() }
    }

    /// Lets this many short spans go by, by the store's clock.
    pub(super) async fn pass(&self, spans: u32) {
        let span = self.span() * spans;
        match &self.clock {
            Some(clock) => clock.advance(span),
            // The store's own clock cannot be advanced.
            None => tokio::time::sleep(span).await,
        }
    }

    /// What makes what is there now older than what comes, also where the store's clock stands still.
    pub(super) fn ticker(&self) -> impl Fn() + Clone + Send + Sync + 'static {
        let clock = self.clock.clone();
        move || {
            if let Some(clock) = &clock {
                clock.advance(Duration::from_micros(1));
            }
        }
    }

    /// The store's time, so many short spans from now.
    pub(super) async fn ahead(&self, spans: u32) -> Result<Timestamp, Stop> {
        Ok(add(self.one.now().await?, self.span() * spans))
    }

    /// The node of this number; they take turns.
    pub(super) fn node(&self, number: usize) -> &Store {
        if number.is_multiple_of(2) { &self.one } else { &self.other }
    }
}

/// The definition that cases use where it does not matter.
pub(super) const ORDER: &str = "order";

/// An instance of [`ORDER`], version 1.
pub(super) fn order() -> NewInstance {
    NewInstance::new(ORDER, 1, "shape-1", json(r#"{"lines":2}"#))
}

pub(super) fn json(text: &str) -> Encoded {
    Encoded::from_json(text)
}

/// A JSON text of exactly so many bytes, at least 2.
pub(super) fn json_of(bytes: usize) -> Encoded {
    Encoded::from_json(format!("\"{}\"", "x".repeat(bytes.saturating_sub(2))))
}

/// A number that no other call gives.
pub(super) fn unique() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

pub(super) fn pointer_id(name: &str) -> PointerId {
    PointerId::derive(&[b"testkit", name.as_bytes()])
}

/// A ready pointer whose step is named after its sequence.
pub(super) fn pointer(sequence: i64) -> PointerRecord {
    let step = format!("step {sequence}");
    PointerRecord::new(pointer_id(&step), sequence, step)
}

pub(super) fn wait_id(name: &str) -> SubscriptionId {
    SubscriptionId::derive(&[b"testkit", name.as_bytes()])
}

/// A wait in the slot `slot`, whose id says slot and sequence.
pub(super) fn wait(event: (&str, &str), slot: &str, sequence: i64, as_of: Timestamp) -> Subscription {
    let id = wait_id(&format!("{slot} {sequence}"));
    Subscription::new(id, pointer_id(slot), event.0, event.1, slot, as_of, sequence)
}

/// An event of this name and key, with data that says its id.
pub(super) fn event(event: (&str, &str)) -> NewEvent {
    let event = NewEvent::new(event.0, event.1);
    let data = json(&format!("\"{}\"", event.id));
    event.with_data(data)
}

/// Runnable, with nothing due by itself.
pub(super) fn idle() -> HeaderUpdate {
    in_status(WorkflowStatus::Runnable)
}

/// In this status, with nothing due by itself.
pub(super) fn in_status(status: WorkflowStatus) -> HeaderUpdate {
    HeaderUpdate { status, reason: None, due: Due::Never, fault_count: 0 }
}

/// Commits one checkpoint.
pub(super) async fn commit(store: &Store, checkpoint: &Checkpoint) -> Result<CheckpointOutcome, Stop> {
    let mut answers = store.commit(vec![Arc::new(checkpoint.clone())]).await;
    match (answers.pop(), answers.len()) {
        (Some(answer), 0) => Ok(answer),
        (_, more) => Err(Stop::Failed(format!("one checkpoint must have one answer, it had {more} more or none"))),
    }
}

/// The answer to a checkpoint that must be written.
pub(super) fn committed(outcome: CheckpointOutcome) -> Result<Committed, Stop> {
    match outcome {
        CheckpointOutcome::Committed(committed) => Ok(committed),
        other => Err(Stop::Failed(format!("a checkpoint of the stored revision must be committed, it was {other:?}"))),
    }
}

/// Loads an instance that must be there.
pub(super) async fn load(store: &Store, instance: &InstanceId) -> Result<LoadedInstance, Stop> {
    store.load(instance).await?.ok_or_else(|| Stop::Failed(format!("instance {instance} must be there, it is not")))
}

/// The owner of an instance: the one who writes its checkpoints.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) store: Store,
    pub(super) id: InstanceId,
    pub(super) revision: Revision,
    burst: u128,
    number: u64,
}

impl Owner {
    /// The owner of a new instance of [`ORDER`].
    pub(super) async fn new(store: &Store) -> Result<Self, Stop> {
        Self::of(store, order()).await
    }

    /// The owner of this new instance.
    pub(super) async fn of(store: &Store, instance: NewInstance) -> Result<Self, Stop> {
        let answers = store.create(std::slice::from_ref(&instance)).await?;
        check_eq!(answers, [latchwork_core::store::CreateOutcome::Created], "the answer to a create");
        Ok(Self::existing(store, instance.id))
    }

    /// The owner of a new instance that waits as `wait` says; nothing is due by itself.
    pub(super) async fn waiting(store: &Store, waits: Vec<Subscription>) -> Result<Self, Stop> {
        let mut owner = Self::new(store).await?;
        owner.write(|checkpoint| checkpoint.subscriptions = waits).await?;
        Ok(owner)
    }

    /// The owner of an instance of revision 1.
    pub(super) fn existing(store: &Store, id: InstanceId) -> Self {
        Self { store: store.clone(), id, revision: Revision::FIRST, burst: u128::from(unique()), number: 0 }
    }

    /// The next checkpoint: it changes nothing, and nothing is due by itself.
    pub(super) fn checkpoint(&mut self) -> Checkpoint {
        self.number += 1;
        let id = CheckpointId { burst: self.burst, number: self.number };
        Checkpoint::new(self.id.clone(), id, self.revision, idle())
    }

    /// Writes this checkpoint, which must succeed.
    pub(super) async fn commit(&mut self, checkpoint: &Checkpoint) -> Result<Committed, Stop> {
        let committed = committed(commit(&self.store, checkpoint).await?)?;
        check_eq!(committed.revision, self.revision.next(), "the revision after a checkpoint");
        self.revision = committed.revision;
        Ok(committed)
    }

    /// Writes the next checkpoint, changed like this.
    pub(super) async fn write(&mut self, change: impl FnOnce(&mut Checkpoint)) -> Result<Committed, Stop> {
        let mut checkpoint = self.checkpoint();
        change(&mut checkpoint);
        self.commit(&checkpoint).await
    }

    /// Writes a checkpoint with this header.
    pub(super) async fn set(&mut self, header: HeaderUpdate) -> Result<Committed, Stop> {
        self.write(|checkpoint| checkpoint.header = header).await
    }

    /// Ends the instance.
    pub(super) async fn end(&mut self, status: WorkflowStatus) -> Result<Committed, Stop> {
        self.set(in_status(status)).await
    }

    pub(super) async fn load(&self) -> Result<LoadedInstance, Stop> {
        load(&self.store, &self.id).await
    }

    /// Takes an event out of the inbox as the engine does: applied, consumed, and its wait ended.
    pub(super) async fn consume(&mut self, row: &InboxRow) -> Result<Committed, Stop> {
        let (subscription, slot, event) = check_matches!(
            row.message.clone(),
            InboxMessage::Event { subscription, slot, event, .. } => (subscription, slot, event),
            "the row to be consumed"
        );
        let row = row.id;
        self.write(|checkpoint| {
            checkpoint.applied = vec![row];
            checkpoint.ended_subscriptions = vec![subscription];
            checkpoint.consumed = vec![latchwork_core::store::ConsumedEvent { slot, event }];
        })
        .await
    }
}

/// The waits of an inbox's event rows, each with its event.
pub(super) fn matches(inbox: &[InboxRow]) -> Vec<(SubscriptionId, EventId)> {
    let of_event = |row: &InboxRow| match &row.message {
        InboxMessage::Event { subscription, event, .. } => Some((*subscription, event.clone())),
        InboxMessage::Control(_) => None,
    };
    inbox.iter().filter_map(of_event).collect()
}

/// The control messages of an inbox.
pub(super) fn controls(inbox: &[InboxRow]) -> Vec<Control> {
    let control = |row: &InboxRow| match &row.message {
        InboxMessage::Control(control) => Some(control.clone()),
        InboxMessage::Event { .. } => None,
    };
    inbox.iter().filter_map(control).collect()
}

/// The inbox of one instance, as `read_inbox` tells it.
pub(super) async fn read_inbox(store: &Store, instance: &InstanceId) -> Result<Vec<InboxRow>, Stop> {
    let read = store.read_inbox(std::slice::from_ref(instance)).await?;
    check!(read.iter().all(|(id, rows)| id == instance && !rows.is_empty()), "an inbox without rows is left out: {read:?}");
    check!(read.len() <= 1, "an instance's inbox is told once: {read:?}");
    Ok(read.into_iter().flat_map(|(_, rows)| rows).collect())
}

/// The query for [`ORDER`], version 1.
pub(super) fn runnable_orders(limit: usize) -> RunnableQuery {
    RunnableQuery::new(vec![(ORDER.into(), 1)], limit)
}

/// Everything of [`ORDER`] that is runnable within this time.
pub(super) async fn runnable(store: &Store, horizon: Duration) -> Result<Vec<RunnableItem>, Stop> {
    Ok(store.runnable(&runnable_orders(1_000).with_horizon(horizon)).await?.items)
}

/// Whether the instance is runnable now.
pub(super) async fn is_runnable(store: &Store, instance: &InstanceId) -> Result<bool, Stop> {
    Ok(runnable(store, Duration::ZERO).await?.iter().any(|item| item.item.instance == *instance))
}

/// The instances of some hints, sorted.
pub(super) fn instances<'a>(items: impl IntoIterator<Item = &'a latchwork_core::queue::WorkItem>) -> Vec<InstanceId> {
    let mut ids: Vec<_> = items.into_iter().map(|item| item.instance.clone()).collect();
    ids.sort();
    ids
}

/// Runs all of them at the same time, each in a task of its own; their results in order.
pub(super) async fn together<T, F>(futures: impl IntoIterator<Item = F>) -> Result<Vec<T>, Stop>
where
    F: Future<Output = Result<T, Stop>> + Send + 'static,
    T: Send + 'static,
{
    let tasks: Vec<_> = futures.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await??);
    }
    Ok(results)
}
