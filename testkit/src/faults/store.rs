use super::{Faults, rule::Answer};
use latchwork_core::{
    async_trait,
    clock::Timestamp,
    store::{
        ActivityClaim, ActivityOutcome, ActivityToken, AppendOutcome, Checkpoint, CheckpointOutcome, Control, CreateOutcome,
        DefineOutcome, DefinitionShape, ErrorRecord, ExclusiveClaim, Fence, IdentityOutcome, InboxRow, InstanceId, InstanceQuery,
        InstanceRecord, InstanceSummary, LoadedInstance, NewEvent, NewInstance, Page, PersistenceProvider, PointerId,
        PointerRecord, PublishOutcome, PurgeReport, PurgeRequest, RunnablePage, RunnableQuery, SchemaMode, StepTransaction,
        StoreCapabilities, StoreError, StoreErrorKind, StoreStatistics, SubmitOutcome,
    },
};
use std::{any::Any, fmt, sync::Arc, time::Duration};

/// The calls of a store, by its methods' names. What they are about: the instance where there is one, `name key` of an event,
/// the name of an activity, the definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each is named after its method")]
pub enum StoreCall {
    Prepare,
    ClaimIdentity,
    ClaimExclusive,
    Define,
    Create,
    Load,
    LoadScope,
    /// Asked for each checkpoint of a group: a rule about one leaves the others alone, but who is held holds its group.
    Commit,
    Fence,
    Begin,
    /// The commit of a step's transaction with its checkpoint.
    CommitStep,
    Publish,
    Append,
    ReadInbox,
    Runnable,
    ClaimActivity,
    ReleaseActivity,
    SubmitActivity,
    Get,
    FindByKey,
    Find,
    History,
    Errors,
    Statistics,
    Purge,
    Now,
    Stop,
}

type Change = Box<dyn Fn(StoreCapabilities) -> StoreCapabilities + Send + Sync>;

/// A store that fails, waits and loses answers on command; see the [module](super).
///
/// Each node of a test gets one of its own over the same content, so that faults can befall one node alone.
pub struct FaultyStore {
    inner: Arc<dyn PersistenceProvider>,
    faults: Faults<StoreCall, StoreErrorKind>,
    change: Option<Change>,
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("inner", &self.inner).field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl FaultyStore {
    /// Wraps a store.
    pub fn new(inner: impl PersistenceProvider) -> Self {
        Self::over(Arc::new(inner))
    }

    /// Wraps a store that others use too. Stopping the wrapper stops the store.
    pub fn over(inner: Arc<dyn PersistenceProvider>) -> Self {
        Self { inner, faults: Faults::default(), change: None }
    }

    /// Shows capabilities that are not the store's own, for example a wider scope.
    #[must_use]
    pub fn with_capabilities(mut self, change: impl Fn(StoreCapabilities) -> StoreCapabilities + Send + Sync + 'static) -> Self {
        self.change = Some(Box::new(change));
        self
    }

    /// Follows these rules, which were made before.
    #[must_use]
    pub fn with_faults(mut self, faults: &Faults<StoreCall, StoreErrorKind>) -> Self {
        self.faults = faults.clone();
        self
    }

    /// The rules, to be kept when the store is given to a host.
    #[must_use]
    pub fn faults(&self) -> &Faults<StoreCall, StoreErrorKind> {
        &self.faults
    }

    fn error(&self, call: StoreCall, kind: StoreErrorKind) -> StoreError {
        let error = StoreError::new(kind, self.inner.capabilities().domain, format!("{call:?}").to_lowercase());
        error.with_source("a fault on command")
    }

    async fn call<T>(
        &self,
        call: StoreCall,
        about: &str,
        run: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let answer = self.faults.before(call, about).await.map_err(|kind| self.error(call, kind))?;
        let value = run.await?;
        answer.after().await.map_err(|kind| self.error(call, kind))?;
        Ok(value)
    }
}

/// A step's transaction whose commit fails, waits and loses its answer on command.
struct FaultyTransaction {
    inner: Box<dyn StepTransaction>,
    faults: Faults<StoreCall, StoreErrorKind>,
    domain: String,
}

#[async_trait]
impl StepTransaction for FaultyTransaction {
    fn as_any(&mut self) -> &mut (dyn Any + Send) {
        self.inner.as_any()
    }

    async fn commit(self: Box<Self>, checkpoint: Arc<Checkpoint>) -> CheckpointOutcome {
        let Self { inner, faults, domain } = *self;
        let failed = |kind| {
            let error = StoreError::new(kind, domain.clone(), "commitstep").with_source("a fault on command");
            CheckpointOutcome::Failed(error)
        };
        match faults.before(StoreCall::CommitStep, checkpoint.instance.as_str()).await {
            Err(kind) => failed(kind),
            Ok(answer) => {
                let outcome = inner.commit(checkpoint).await;
                answer.after().await.err().map_or(outcome, failed)
            }
        }
    }

    async fn rollback(self: Box<Self>) -> Result<(), StoreError> {
        self.inner.rollback().await
    }
}

#[async_trait]
impl PersistenceProvider for FaultyStore {
    fn capabilities(&self) -> StoreCapabilities {
        let own = self.inner.capabilities();
        match &self.change {
            Some(change) => change(own),
            None => own,
        }
    }

    async fn prepare(&self, mode: SchemaMode) -> Result<(), StoreError> {
        self.call(StoreCall::Prepare, "", self.inner.prepare(mode)).await
    }

    async fn claim_identity(&self, namespace: &str, lock_domain: &str, replace: bool) -> Result<IdentityOutcome, StoreError> {
        self.call(StoreCall::ClaimIdentity, namespace, self.inner.claim_identity(namespace, lock_domain, replace)).await
    }

    async fn claim_exclusive(&self, node: &str) -> Result<Box<dyn ExclusiveClaim>, StoreError> {
        self.call(StoreCall::ClaimExclusive, node, self.inner.claim_exclusive(node)).await
    }

    async fn define(&self, shape: &DefinitionShape) -> Result<DefineOutcome, StoreError> {
        self.call(StoreCall::Define, &shape.definition, self.inner.define(shape)).await
    }

    async fn create(&self, instances: &[NewInstance]) -> Result<Vec<CreateOutcome>, StoreError> {
        let about = instances.first().map_or("", |instance| instance.id.as_str());
        self.call(StoreCall::Create, about, self.inner.create(instances)).await
    }

    async fn load(&self, instance: &InstanceId) -> Result<Option<LoadedInstance>, StoreError> {
        self.call(StoreCall::Load, instance.as_str(), self.inner.load(instance)).await
    }

    async fn load_scope(&self, instance: &InstanceId, scope: PointerId) -> Result<Vec<PointerRecord>, StoreError> {
        self.call(StoreCall::LoadScope, instance.as_str(), self.inner.load_scope(instance, scope)).await
    }

    async fn commit(&self, batch: Vec<Arc<Checkpoint>>) -> Vec<CheckpointOutcome> {
        let mut entered: Vec<Result<Answer<StoreErrorKind>, StoreErrorKind>> = Vec::with_capacity(batch.len());
        for checkpoint in &batch {
            entered.push(self.faults.before(StoreCall::Commit, checkpoint.instance.as_str()).await);
        }
        let passed = batch.into_iter().zip(&entered).filter(|(_, entered)| entered.is_ok()).map(|(checkpoint, _)| checkpoint);
        let passed: Vec<_> = passed.collect();
        let mut outcomes = if passed.is_empty() { Vec::new() } else { self.inner.commit(passed).await }.into_iter();
        let mut answers = Vec::with_capacity(entered.len());
        for entered in entered {
            let failed = |kind| CheckpointOutcome::Failed(self.error(StoreCall::Commit, kind));
            answers.push(match entered {
                Err(kind) => failed(kind),
                Ok(answer) => {
                    let outcome = outcomes.next().unwrap_or_else(|| failed(StoreErrorKind::Unavailable));
                    answer.after().await.err().map_or(outcome, failed)
                }
            });
        }
        answers
    }

    async fn fence(&self, instance: &InstanceId) -> Result<Option<Fence>, StoreError> {
        self.call(StoreCall::Fence, instance.as_str(), self.inner.fence(instance)).await
    }

    async fn begin(&self) -> Result<Option<Box<dyn StepTransaction>>, StoreError> {
        let begun = self.call(StoreCall::Begin, "", self.inner.begin()).await?;
        let domain = self.inner.capabilities().domain;
        Ok(begun
            .map(|inner| Box::new(FaultyTransaction { inner, faults: self.faults.clone(), domain }) as Box<dyn StepTransaction>))
    }

    async fn publish(&self, events: &[NewEvent]) -> Result<PublishOutcome, StoreError> {
        let about = events.first().map(|event| format!("{} {}", event.name, event.key)).unwrap_or_default();
        self.call(StoreCall::Publish, &about, self.inner.publish(events)).await
    }

    async fn append(&self, messages: &[(InstanceId, Control)]) -> Result<Vec<AppendOutcome>, StoreError> {
        let about = messages.first().map_or("", |(instance, _)| instance.as_str());
        self.call(StoreCall::Append, about, self.inner.append(messages)).await
    }

    async fn read_inbox(&self, instances: &[InstanceId]) -> Result<Vec<(InstanceId, Vec<InboxRow>)>, StoreError> {
        let about = instances.first().map_or("", |instance| instance.as_str());
        self.call(StoreCall::ReadInbox, about, self.inner.read_inbox(instances)).await
    }

    async fn runnable(&self, query: &RunnableQuery) -> Result<RunnablePage, StoreError> {
        self.call(StoreCall::Runnable, "", self.inner.runnable(query)).await
    }

    async fn claim_activity(&self, names: &[String], worker: &str, lease: Duration) -> Result<Option<ActivityClaim>, StoreError> {
        let about = names.first().map_or("", String::as_str);
        self.call(StoreCall::ClaimActivity, about, self.inner.claim_activity(names, worker, lease)).await
    }

    async fn release_activity(&self, token: &ActivityToken) -> Result<bool, StoreError> {
        self.call(StoreCall::ReleaseActivity, "", self.inner.release_activity(token)).await
    }

    async fn submit_activity(&self, token: &ActivityToken, outcome: ActivityOutcome) -> Result<SubmitOutcome, StoreError> {
        self.call(StoreCall::SubmitActivity, "", self.inner.submit_activity(token, outcome)).await
    }

    async fn get(&self, instance: &InstanceId) -> Result<Option<InstanceRecord>, StoreError> {
        self.call(StoreCall::Get, instance.as_str(), self.inner.get(instance)).await
    }

    async fn find_by_key(&self, definition: &str, business_key: &str) -> Result<Option<InstanceId>, StoreError> {
        self.call(StoreCall::FindByKey, definition, self.inner.find_by_key(definition, business_key)).await
    }

    async fn find(&self, query: &InstanceQuery) -> Result<Page<InstanceSummary>, StoreError> {
        self.call(StoreCall::Find, "", self.inner.find(query)).await
    }

    async fn history(&self, instance: &InstanceId, after: i64, limit: usize) -> Result<Page<PointerRecord>, StoreError> {
        self.call(StoreCall::History, instance.as_str(), self.inner.history(instance, after, limit)).await
    }

    async fn errors(&self, instance: &InstanceId) -> Result<Vec<ErrorRecord>, StoreError> {
        self.call(StoreCall::Errors, instance.as_str(), self.inner.errors(instance)).await
    }

    async fn statistics(&self) -> Result<StoreStatistics, StoreError> {
        self.call(StoreCall::Statistics, "", self.inner.statistics()).await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<PurgeReport, StoreError> {
        self.call(StoreCall::Purge, "", self.inner.purge(request)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.call(StoreCall::Now, "", self.inner.now()).await
    }

    async fn stop(&self, grace: Duration) -> Result<(), StoreError> {
        self.call(StoreCall::Stop, "", self.inner.stop(grace)).await
    }
}
