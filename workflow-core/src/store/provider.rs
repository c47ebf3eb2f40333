use super::{
    ActivityClaim, ActivityOutcome, ActivityToken, AppendOutcome, Checkpoint, CheckpointOutcome, Control, CreateOutcome,
    DefineOutcome, DefinitionShape, ErrorRecord, Fence, IdentityOutcome, InboxRow, InstanceId, InstanceQuery, InstanceRecord,
    InstanceSummary, LoadedInstance, NewEvent, NewInstance, Page, PointerId, PointerRecord, PublishOutcome, PurgeReport,
    PurgeRequest, RunnablePage, RunnableQuery, StoreError, StoreStatistics, SubmitOutcome,
};
use crate::{Scope, clock::Timestamp};
use async_trait::async_trait;
use std::{any::Any, fmt, sync::Arc, time::Duration};

/// Who makes the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SchemaMode {
    /// Creates what is missing, and migrates what is older.
    #[default]
    Migrate,
    /// Creates the schema where there is none; refuses an older one.
    CreateIfMissing,
    /// Only looks: refuses a schema that is missing or of another version. For teams whose DBA runs DDL.
    Verify,
}

/// Whose clock a store's times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreClock {
    /// The host's [`Clock`](crate::clock::Clock).
    Injected,
    /// The server's own.
    Server,
}

/// What a store can do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreCapabilities {
    /// How far it reaches. A host's lock must reach at least as far.
    pub scope: Scope,
    /// Whose clock its times come from.
    pub clock: StoreClock,
    /// Committing many checkpoints together is cheaper than one by one, so the engine groups them.
    pub group_commit: bool,
    /// [`begin`](PersistenceProvider::begin) gives transactions.
    pub transactional_steps: bool,
    /// [`claim_exclusive`](PersistenceProvider::claim_exclusive) keeps other processes out.
    pub exclusive_claim: bool,
    /// [`InstanceQuery::text`] is served.
    pub text_query: bool,
    /// The same database offers a lease lock.
    pub lease_lock: bool,
    /// Largest data of an instance, in bytes of JSON.
    pub largest_data: usize,
    /// Names the store as all its users see it, without secrets, for example `sqlite:/var/lib/orders.db`.
    pub domain: String,
}

impl StoreCapabilities {
    /// Capabilities of the least kind for this scope, clock and domain.
    pub fn new(scope: Scope, clock: StoreClock, domain: impl Into<String>) -> Self {
        Self {
            scope,
            clock,
            group_commit: false,
            transactional_steps: false,
            exclusive_claim: false,
            text_query: false,
            lease_lock: false,
            largest_data: crate::limits::DATA_BYTES_MAX,
            domain: domain.into(),
        }
    }

    /// Wants its checkpoints in groups.
    #[must_use]
    pub fn with_group_commit(mut self) -> Self {
        self.group_commit = true;
        self
    }

    /// With transactions for steps.
    #[must_use]
    pub fn with_transactional_steps(mut self) -> Self {
        self.transactional_steps = true;
        self
    }

    /// With the exclusive claim.
    #[must_use]
    pub fn with_exclusive_claim(mut self) -> Self {
        self.exclusive_claim = true;
        self
    }

    /// With queries by text.
    #[must_use]
    pub fn with_text_query(mut self) -> Self {
        self.text_query = true;
        self
    }

    /// With a lease lock in the same database.
    #[must_use]
    pub fn with_lease_lock(mut self) -> Self {
        self.lease_lock = true;
        self
    }
}

/// Keeps other processes out of a store while it lives.
pub trait ExclusiveClaim: fmt::Debug + Send + Sync {}

/// A transaction in which a step writes its own data, and which ends with the step's checkpoint: both or neither.
///
/// Rolled back when dropped.
#[async_trait]
pub trait StepTransaction: Send {
    /// The store's own transaction type, which its client crate offers typed access to.
    fn as_any(&mut self) -> &mut (dyn Any + Send);

    /// Appends the checkpoint and commits. Refused or failed: all is rolled back.
    async fn commit(self: Box<Self>, checkpoint: Arc<Checkpoint>) -> CheckpointOutcome;

    /// Takes everything back.
    ///
    /// # Errors
    /// [`StoreError`] when the server did not confirm; the transaction then ends with its connection.
    async fn rollback(self: Box<Self>) -> Result<(), StoreError>;
}

/// A store: the truth about instances, events and definitions.
///
/// What must hold for every implementation, beside the methods' own rules:
///
/// * **One writer, everybody else appends** (I1). Header, data, pointers and subscriptions are written by checkpoints only, each
///   conditional on revision and not terminal. All other calls append inbox rows and never touch what a checkpoint writes.
/// * **Runnable** means: status Runnable and (due, or a visible event row in the inbox), or a control row in the inbox in any open
///   status. It is found by index, whatever else is stored.
/// * **Events** (I3). Whoever adds a subscription or an event first locks the *channel* of its (name, key), then inserts, then
///   matches in a later statement, so that of the two the later one sees the other. Matching gives each open, unmatched wait of
///   (name, key) the earliest event, by (time, number), with `time >= as_of` that its slot has neither consumed nor been matched
///   to; the oldest wait (by sequence) of a slot goes first. A match is an inbox row, visible at the event's time; a future match
///   gives way to an event that comes earlier. When a wait ends unconsumed its match is taken back, and offered to the next wait
///   of the slot.
/// * **Time** (I4). Times that are compared come from one clock, [`StoreCapabilities::clock`], in whole microseconds.
/// * **Names are compared byte by byte.**
/// * Data is opaque text, in a row of its own, written only when it changed. Cost per checkpoint is flat in the number of the
///   instance's pointers and of other instances.
/// * A call whose future is dropped has happened or not; it never leaves half.
#[doc(alias = "IPersistenceProvider")]
#[async_trait]
pub trait PersistenceProvider: fmt::Debug + Send + Sync + 'static {
    /// What this store can do. Constant over its life.
    fn capabilities(&self) -> StoreCapabilities;

    /// Makes or checks the schema. Many nodes may call it at once; it happens once.
    ///
    /// # Errors
    /// [`StoreErrorKind::Schema`](super::StoreErrorKind::Schema) when the mode does not allow what is needed, or the schema is newer
    /// than this version knows.
    #[doc(alias = "EnsureStoreExists")]
    async fn prepare(&self, mode: SchemaMode) -> Result<(), StoreError>;

    /// Enters this namespace and lock domain as the store's own when there are none yet, or when `replace` is set; compares
    /// otherwise. The cluster id is drawn by the first call and stays.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn claim_identity(&self, namespace: &str, lock_domain: &str, replace: bool) -> Result<IdentityOutcome, StoreError>;

    /// Keeps other processes out for as long as the claim lives. `node` is told to those who are refused.
    ///
    /// # Errors
    /// [`StoreErrorKind::Denied`](super::StoreErrorKind::Denied), naming the holder, when another process has it;
    /// [`StoreErrorKind::Unsupported`](super::StoreErrorKind::Unsupported) without the capability.
    async fn claim_exclusive(&self, node: &str) -> Result<Box<dyn ExclusiveClaim>, StoreError>;

    /// Registers the shape of a definition's version. A differing stored one is replaced when no open instance uses it.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn define(&self, shape: &DefinitionShape) -> Result<DefineOutcome, StoreError>;

    /// Creates instances, Runnable and due now, each with its own answer, in the order of `instances`. Repeating a create of the
    /// same id is a no-op. Business keys are unique per definition id over all versions and states, tombstones included, also
    /// against concurrent creates.
    ///
    /// # Errors
    /// [`StoreError`] when none of them could be created; the call can be repeated as it is.
    #[doc(alias = "CreateNewWorkflow")]
    async fn create(&self, instances: &[NewInstance]) -> Result<Vec<CreateOutcome>, StoreError>;

    /// The open part of an instance, also of an ended one; `None` when it is unknown or deleted.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure, or [`StoreErrorKind::Corrupt`](super::StoreErrorKind::Corrupt).
    async fn load(&self, instance: &InstanceId) -> Result<Option<LoadedInstance>, StoreError>;

    /// The finished pointers of an open saga, in order of their sequence.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn load_scope(&self, instance: &InstanceId, scope: PointerId) -> Result<Vec<PointerRecord>, StoreError>;

    /// Writes checkpoints, of different instances, each with its own answer, in the order of `batch`. A conflict is an answer, and
    /// so is a bad value: neither fails its neighbours. After an unknown outcome (a connection lost at the commit) the store reads
    /// the [`Fence`] and answers by [`Fence::tells_of`]; it never reports a checkpoint as failed that was written.
    #[doc(alias = "PersistWorkflow")]
    async fn commit(&self, batch: Vec<Arc<Checkpoint>>) -> Vec<CheckpointOutcome>;

    /// The fence of an instance; `None` when it is unknown or deleted.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn fence(&self, instance: &InstanceId) -> Result<Option<Fence>, StoreError>;

    /// Opens a transaction for a step. `None` without the capability.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn begin(&self) -> Result<Option<Box<dyn StepTransaction>>, StoreError>;

    /// Publishes events and matches them, in one transaction. Repeating a publish of the same id is a no-op that answers with what
    /// still waits in inboxes because of it.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was published, or the call can be repeated as it is.
    #[doc(alias = "CreateEvent")]
    async fn publish(&self, events: &[NewEvent]) -> Result<PublishOutcome, StoreError>;

    /// Appends control messages, each with its own answer, in the order of `messages`.
    ///
    /// # Errors
    /// [`StoreError`]; none was appended.
    async fn append(&self, messages: &[(InstanceId, Control)]) -> Result<Vec<AppendOutcome>, StoreError>;

    /// The visible inbox rows of these instances, in one query; instances without any are left out.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn read_inbox(&self, instances: &[InstanceId]) -> Result<Vec<(InstanceId, Vec<InboxRow>)>, StoreError>;

    /// Instances that have something to do, by index. Writes nothing.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    #[doc(alias = "GetRunnableInstances")]
    async fn runnable(&self, query: &RunnableQuery) -> Result<RunnablePage, StoreError>;

    /// Hands the oldest open activity of one of these names, whose token is free or expired, to a worker for `lease`. Two workers
    /// never get the same one. Activities of instances that are not Runnable are not handed out.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn claim_activity(&self, names: &[String], worker: &str, lease: Duration) -> Result<Option<ActivityClaim>, StoreError>;

    /// Gives a claimed activity back at once; `false` when the token is not its current one.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn release_activity(&self, token: &ActivityToken) -> Result<bool, StoreError>;

    /// A worker's result: stored as an inbox row, when the token is the current one and has not expired, once.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn submit_activity(&self, token: &ActivityToken, outcome: ActivityOutcome) -> Result<SubmitOutcome, StoreError>;

    /// One instance with its data, or what is left of it.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    #[doc(alias = "GetWorkflowInstance")]
    async fn get(&self, instance: &InstanceId) -> Result<Option<InstanceRecord>, StoreError>;

    /// The instance with this business key, tombstones included.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn find_by_key(&self, definition: &str, business_key: &str) -> Result<Option<InstanceId>, StoreError>;

    /// A page of instances.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    #[doc(alias = "GetWorkflowInstances")]
    async fn find(&self, query: &InstanceQuery) -> Result<Page<InstanceSummary>, StoreError>;

    /// A page of an instance's pointers, open and finished, after this sequence number.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn history(&self, instance: &InstanceId, after: i64, limit: usize) -> Result<Page<PointerRecord>, StoreError>;

    /// The errors kept of an instance, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn errors(&self, instance: &InstanceId) -> Result<Vec<ErrorRecord>, StoreError>;

    /// How much is in the store.
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    async fn statistics(&self) -> Result<StoreStatistics, StoreError>;

    /// Removes what is older than the request says, set-based, in one batch. An ended instance is deleted with all that belongs to
    /// it and leaves a [`Tombstone`](super::Tombstone).
    ///
    /// # Errors
    /// [`StoreError`] of the infrastructure.
    #[doc(alias = "PurgeWorkflows")]
    async fn purge(&self, request: &PurgeRequest) -> Result<PurgeReport, StoreError>;

    /// The store's time; also a cheap round trip for health reports.
    ///
    /// # Errors
    /// [`StoreError`] when the store does not answer as it should.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Finishes what is under way, closes connections, and refuses new calls, within `grace` (I7). Calling it again is harmless.
    ///
    /// # Errors
    /// [`StoreError`] when it could not be finished in time; nothing half-written stays.
    async fn stop(&self, grace: Duration) -> Result<(), StoreError>;
}
