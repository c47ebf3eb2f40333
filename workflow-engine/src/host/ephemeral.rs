//! A store for one run that nothing outlives.

use latchwork_core::{
    Scope, async_trait,
    clock::{Clock, Timestamp, add, whole_micros},
    lock::{DistributedLockProvider, LockCapabilities, LockError, LockGuard, LockRequest, LossDetection, LossSignal, Release},
    name::Namespace,
    queue::{Delivery, QueueCapabilities, QueueDepth, QueueError, QueueKind, QueueProvider, Redelivery, WorkItem},
    store::*,
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// Keeps one instance while it runs, on the caller's task. There is nobody else: no inbox, no events, no queue.
#[derive(Debug)]
pub(super) struct Ephemeral {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    header: InstanceHeader,
    data: Encoded,
    pointers: BTreeMap<PointerId, PointerRecord>,
    last_sequence: i64,
    subscriptions: Vec<Subscription>,
    activities: Vec<Activity>,
}

impl Ephemeral {
    pub(super) fn new(instance: NewInstance, clock: Arc<dyn Clock>) -> Self {
        let now = clock.now();
        let header = InstanceHeader {
            id: instance.id,
            definition: instance.definition,
            version: instance.version,
            fingerprint: instance.fingerprint,
            business_key: instance.business_key,
            reference: instance.reference,
            parent: None,
            created: now,
            status: WorkflowStatus::Runnable,
            reason: None,
            due: Some(now),
            fault_count: 0,
            ended: None,
            revision: Revision::FIRST,
            writer: None,
        };
        let state = State {
            header,
            data: instance.data,
            pointers: BTreeMap::new(),
            last_sequence: 0,
            subscriptions: Vec::new(),
            activities: Vec::new(),
        };
        Self { clock, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn header(&self) -> InstanceHeader {
        self.state().header.clone()
    }

    pub(super) fn data(&self) -> Encoded {
        self.state().data.clone()
    }

    fn write(&self, checkpoint: &Checkpoint) -> CheckpointOutcome {
        let now = self.clock.now();
        let outside = [
            (!checkpoint.children.is_empty(), "start workflows"),
            (!checkpoint.events.is_empty(), "publish events"),
            (!checkpoint.messages.is_empty(), "send messages to other instances"),
            (!checkpoint.activities.is_empty(), "wait for external workers"),
        ];
        if let Some((_, what)) = outside.into_iter().find(|(is_asked, _)| *is_asked) {
            let error = unsupported("write a checkpoint").with_source(format!("a run without persistence cannot {what}"));
            return CheckpointOutcome::Failed(error);
        }
        let mut state = self.state();
        if state.header.revision != checkpoint.expected || state.header.status.is_terminal() {
            return CheckpointOutcome::Refused { stored: Some(state.header.revision) };
        }
        let update = &checkpoint.header;
        state.header.revision = state.header.revision.next();
        state.header.writer = Some(checkpoint.id);
        state.header.status = update.status;
        state.header.reason.clone_from(&update.reason);
        state.header.fault_count = update.fault_count;
        state.header.due = match update.due {
            Due::Keep => state.header.due,
            Due::In(span) => Some(whole_micros(add(now, span))),
            Due::At(time) => Some(time),
            Due::Never => None,
        };
        if update.status.is_terminal() {
            state.header.ended = Some(now);
        }
        if let Some(data) = &checkpoint.data {
            state.data = data.clone();
        }
        for pointer in &checkpoint.pointers {
            state.last_sequence = state.last_sequence.max(pointer.sequence);
            state.pointers.insert(pointer.id, pointer.clone());
        }
        // What is finished matters to sagas only.
        state.pointers.retain(|_, pointer| pointer.status.is_open() || pointer.scope.is_some());
        state.subscriptions.retain(|wait| !checkpoint.ended_subscriptions.contains(&wait.id));
        state.subscriptions.extend(checkpoint.subscriptions.iter().cloned());
        CheckpointOutcome::Committed(Committed { revision: state.header.revision, now, inbox: Vec::new(), wake: Vec::new() })
    }

    fn pointers(&self, is_such: impl Fn(&PointerRecord) -> bool) -> Vec<PointerRecord> {
        let mut pointers: Vec<_> = self.state().pointers.values().filter(|pointer| is_such(pointer)).cloned().collect();
        pointers.sort_by_key(|pointer| pointer.sequence);
        pointers
    }
}

fn unsupported(action: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unsupported, "ephemeral", action)
}

#[async_trait]
impl PersistenceProvider for Ephemeral {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities::new(Scope::Process, StoreClock::Injected, "ephemeral")
    }

    async fn prepare(&self, _: SchemaMode) -> Result<(), StoreError> {
        Ok(())
    }

    async fn claim_identity(&self, _: &str, _: &str, _: bool) -> Result<IdentityOutcome, StoreError> {
        Err(unsupported("claim the identity"))
    }

    async fn claim_exclusive(&self, _: &str) -> Result<Box<dyn ExclusiveClaim>, StoreError> {
        Err(unsupported("claim it"))
    }

    async fn define(&self, _: &DefinitionShape) -> Result<DefineOutcome, StoreError> {
        Ok(DefineOutcome::Stored)
    }

    async fn create(&self, _: &[NewInstance]) -> Result<Vec<CreateOutcome>, StoreError> {
        Err(unsupported("create instances"))
    }

    async fn load(&self, _: &InstanceId) -> Result<Option<LoadedInstance>, StoreError> {
        let pointers = self.pointers(|pointer| pointer.status.is_open());
        let state = self.state();
        Ok(Some(LoadedInstance {
            header: state.header.clone(),
            data: state.data.clone(),
            pointers,
            last_sequence: state.last_sequence,
            subscriptions: state.subscriptions.clone(),
            activities: state.activities.clone(),
            inbox: Vec::new(),
            now: self.clock.now(),
        }))
    }

    async fn load_scope(&self, _: &InstanceId, scope: PointerId) -> Result<Vec<PointerRecord>, StoreError> {
        Ok(self.pointers(|pointer| pointer.scope == Some(scope) && !pointer.status.is_open()))
    }

    async fn commit(&self, batch: Vec<Arc<Checkpoint>>) -> Vec<CheckpointOutcome> {
        batch.iter().map(|checkpoint| self.write(checkpoint)).collect()
    }

    async fn fence(&self, _: &InstanceId) -> Result<Option<Fence>, StoreError> {
        let state = self.state();
        Ok(Some(Fence { revision: state.header.revision, writer: state.header.writer }))
    }

    async fn begin(&self) -> Result<Option<Box<dyn StepTransaction>>, StoreError> {
        Ok(None)
    }

    async fn publish(&self, _: &[NewEvent]) -> Result<PublishOutcome, StoreError> {
        Err(unsupported("publish events"))
    }

    async fn append(&self, _: &[(InstanceId, Control)]) -> Result<Vec<AppendOutcome>, StoreError> {
        Err(unsupported("append messages"))
    }

    async fn read_inbox(&self, _: &[InstanceId]) -> Result<Vec<(InstanceId, Vec<InboxRow>)>, StoreError> {
        Ok(Vec::new())
    }

    async fn runnable(&self, _: &RunnableQuery) -> Result<RunnablePage, StoreError> {
        Ok(RunnablePage { items: Vec::new(), now: self.clock.now() })
    }

    async fn claim_activity(&self, _: &[String], _: &str, _: Duration) -> Result<Option<ActivityClaim>, StoreError> {
        Ok(None)
    }

    async fn release_activity(&self, _: &ActivityToken) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn submit_activity(&self, _: &ActivityToken, _: ActivityOutcome) -> Result<SubmitOutcome, StoreError> {
        Ok(SubmitOutcome::Refused)
    }

    async fn get(&self, _: &InstanceId) -> Result<Option<InstanceRecord>, StoreError> {
        Ok(Some(InstanceRecord::Instance { header: self.header(), data: self.data(), attributes: Vec::new() }))
    }

    async fn find_by_key(&self, _: &str, _: &str) -> Result<Option<InstanceId>, StoreError> {
        Ok(None)
    }

    async fn find(&self, _: &InstanceQuery) -> Result<Page<InstanceSummary>, StoreError> {
        Err(unsupported("list instances"))
    }

    async fn history(&self, _: &InstanceId, _: i64, _: usize) -> Result<Page<PointerRecord>, StoreError> {
        Err(unsupported("read a history"))
    }

    async fn errors(&self, _: &InstanceId) -> Result<Vec<ErrorRecord>, StoreError> {
        Ok(Vec::new())
    }

    async fn statistics(&self) -> Result<StoreStatistics, StoreError> {
        Ok(StoreStatistics::default())
    }

    async fn purge(&self, _: &PurgeRequest) -> Result<PurgeReport, StoreError> {
        Ok(PurgeReport::default())
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }

    async fn stop(&self, _: Duration) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Locks where there is nobody to exclude.
pub(super) struct Alone(pub(super) Namespace);

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alone")
    }
}

struct Nothing;

impl Release for Nothing {
    fn release(self: Box<Self>, reply: Option<oneshot::Sender<Result<(), LockError>>>) {
        if let Some(reply) = reply {
            let _ = reply.send(Ok(()));
        }
    }
}

#[async_trait]
impl DistributedLockProvider for Alone {
    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities::new(Scope::Process, LossDetection::Process, "ephemeral")
    }

    fn namespace(&self) -> &Namespace {
        &self.0
    }

    async fn acquire(&self, request: LockRequest) -> Result<Option<LockGuard>, LockError> {
        Ok(Some(LockGuard::new(request.key, None, LossSignal::new(), Nothing)))
    }

    async fn check(&self) -> Result<(), LockError> {
        Ok(())
    }

    async fn stop(&self, _: Duration) -> Result<(), LockError> {
        Ok(())
    }
}

/// A queue that nobody fills.
#[derive(Debug)]
pub(super) struct NoQueue;

#[async_trait]
impl QueueProvider for NoQueue {
    fn capabilities(&self) -> QueueCapabilities {
        QueueCapabilities::new(Scope::Process, Redelivery::Never, "ephemeral")
    }

    async fn enqueue(&self, _: QueueKind, _: &[WorkItem]) -> Result<(), QueueError> {
        Ok(())
    }

    async fn dequeue(&self, _: QueueKind, _: usize, _: Duration) -> Result<Vec<Delivery>, QueueError> {
        Ok(Vec::new())
    }

    async fn depth(&self, _: QueueKind) -> Result<QueueDepth, QueueError> {
        Ok(QueueDepth::default())
    }

    async fn stop(&self, _: Duration) -> Result<(), QueueError> {
        Ok(())
    }
}
