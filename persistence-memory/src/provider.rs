use crate::{content::Content, instance::Instance};
use latchwork_core::{
    Scope, async_trait,
    clock::{Clock, SystemClock, Timestamp, add},
    store::{
        ActivityClaim, ActivityOutcome, ActivityToken, AppendOutcome, Checkpoint, CheckpointOutcome, ClusterIdentity, Control,
        CreateOutcome, DefineOutcome, DefinitionShape, ErrorRecord, ExclusiveClaim, Fence, IdentityOutcome, InboxRow, InstanceId,
        InstanceQuery, InstanceRecord, InstanceSummary, LoadedInstance, NewEvent, NewInstance, Page, PersistenceProvider,
        PointerId, PointerRecord, PublishOutcome, PurgeReport, PurgeRequest, RunnablePage, RunnableQuery, SchemaMode,
        StepTransaction, StoreCapabilities, StoreClock, StoreError, StoreErrorKind, StoreStatistics, SubmitOutcome,
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// A store in the memory of this process.
///
/// A clone is another handle to the same content, so that a host can be stopped and another one started on what it left:
/// stopping a handle stops that one only. The content lives as long as a handle to it does.
#[derive(Debug)]
pub struct MemoryStore {
    content: Arc<Content>,
    stopped: AtomicBool,
}

impl MemoryStore {
    /// An empty store that takes its times from the operating system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// An empty store that takes its times from this clock.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        /// Tells the stores of this process apart.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let domain = format!("memory:{}", LAST.fetch_add(1, Ordering::Relaxed) + 1);
        let largest_data = StoreCapabilities::new(Scope::Process, StoreClock::Injected, "").largest_data;
        Self { content: Arc::new(Content::new(clock, domain, largest_data)), stopped: AtomicBool::new(false) }
    }

    /// The content, unless this handle was stopped.
    fn content(&self, action: &str) -> Result<&Content, StoreError> {
        if self.stopped.load(Ordering::Acquire) {
            let error = StoreError::new(StoreErrorKind::Stopped, &self.content.domain, action);
            return Err(error.with_advice("this handle was stopped; clone the store for another one"));
        }
        Ok(&self.content)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for MemoryStore {
    fn clone(&self) -> Self {
        Self { content: self.content.clone(), stopped: AtomicBool::new(false) }
    }
}

/// One process has the store to itself by nature.
#[derive(Debug)]
struct Claimed;

impl ExclusiveClaim for Claimed {}

#[async_trait]
impl PersistenceProvider for MemoryStore {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities::new(Scope::Process, StoreClock::Injected, &self.content.domain)
            .with_exclusive_claim()
            .with_text_query()
    }

    async fn prepare(&self, _mode: SchemaMode) -> Result<(), StoreError> {
        self.content("prepare").map(|_| ())
    }

    async fn claim_identity(&self, namespace: &str, lock_domain: &str, replace: bool) -> Result<IdentityOutcome, StoreError> {
        let mut common = self.content("claim the identity")?.common();
        let identity = common.identity.get_or_insert_with(|| ClusterIdentity {
            cluster: InstanceId::new().to_string(),
            namespace: namespace.to_owned(),
            lock_domain: lock_domain.to_owned(),
        });
        if replace {
            namespace.clone_into(&mut identity.namespace);
            lock_domain.clone_into(&mut identity.lock_domain);
        }
        let fits = identity.namespace == namespace && identity.lock_domain == lock_domain;
        Ok(if fits { IdentityOutcome::Accepted(identity.clone()) } else { IdentityOutcome::Differs(identity.clone()) })
    }

    async fn claim_exclusive(&self, _node: &str) -> Result<Box<dyn ExclusiveClaim>, StoreError> {
        self.content("claim the store").map(|_| Box::new(Claimed) as Box<dyn ExclusiveClaim>)
    }

    async fn define(&self, shape: &DefinitionShape) -> Result<DefineOutcome, StoreError> {
        let content = self.content("define a workflow")?;
        let mut common = content.common();
        let place = (shape.definition.clone(), shape.version);
        if let Some(stored) = common.definitions.get(&place).filter(|stored| stored.fingerprint != shape.fingerprint)
            && content.is_used(stored)
        {
            return Ok(DefineOutcome::Conflict { stored: stored.clone() });
        }
        common.definitions.insert(place, shape.clone());
        Ok(DefineOutcome::Stored)
    }

    async fn create(&self, instances: &[NewInstance]) -> Result<Vec<CreateOutcome>, StoreError> {
        self.content("create instances")?.create(instances)
    }

    async fn load(&self, instance: &InstanceId) -> Result<Option<LoadedInstance>, StoreError> {
        let content = self.content("load an instance")?;
        let shard = content.shards.of(instance);
        Ok(shard.get(instance).map(|found| found.load(content.clock.now())))
    }

    async fn load_scope(&self, instance: &InstanceId, scope: PointerId) -> Result<Vec<PointerRecord>, StoreError> {
        let shard = self.content("load a scope")?.shards.of(instance);
        Ok(shard.get(instance).map(|found| found.scope(scope)).unwrap_or_default())
    }

    async fn commit(&self, batch: Vec<Arc<Checkpoint>>) -> Vec<CheckpointOutcome> {
        let commit = |checkpoint| match self.content("commit a checkpoint") {
            Ok(content) => content.commit(checkpoint),
            Err(error) => CheckpointOutcome::Failed(error),
        };
        batch.into_iter().map(commit).collect()
    }

    async fn fence(&self, instance: &InstanceId) -> Result<Option<Fence>, StoreError> {
        let shard = self.content("read a fence")?.shards.of(instance);
        Ok(shard.get(instance).map(|found| Fence { revision: found.revision, writer: found.writer() }))
    }

    async fn begin(&self) -> Result<Option<Box<dyn StepTransaction>>, StoreError> {
        self.content("begin a transaction").map(|_| None)
    }

    async fn publish(&self, events: &[NewEvent]) -> Result<PublishOutcome, StoreError> {
        self.content("publish events").map(|content| PublishOutcome { wake: content.publish(events) })
    }

    async fn append(&self, messages: &[(InstanceId, Control)]) -> Result<Vec<AppendOutcome>, StoreError> {
        let content = self.content("append messages")?;
        let append = |(to, control): &(InstanceId, Control)| {
            let mut shard = content.shards.of(to);
            shard.append(to, control.clone(), content.clock.now(), &content.row_ids)
        };
        Ok(messages.iter().map(append).collect())
    }

    async fn read_inbox(&self, instances: &[InstanceId]) -> Result<Vec<(InstanceId, Vec<InboxRow>)>, StoreError> {
        let content = self.content("read inboxes")?;
        let now = content.clock.now();
        let read = |id: &InstanceId| {
            let rows = content.shards.of(id).get(id)?.visible_inbox(now);
            (!rows.is_empty()).then(|| (id.clone(), rows))
        };
        Ok(instances.iter().filter_map(read).collect())
    }

    async fn runnable(&self, query: &RunnableQuery) -> Result<RunnablePage, StoreError> {
        self.content("look for runnable instances").map(|content| content.runnable(query))
    }

    async fn claim_activity(
        &self,
        names: &[String],
        _worker: &str,
        lease: Duration,
    ) -> Result<Option<ActivityClaim>, StoreError> {
        Ok(self.content("claim an activity")?.claim_activity(names, lease))
    }

    async fn release_activity(&self, token: &ActivityToken) -> Result<bool, StoreError> {
        Ok(self.content("release an activity")?.common().activities.release(token))
    }

    async fn submit_activity(&self, token: &ActivityToken, outcome: ActivityOutcome) -> Result<SubmitOutcome, StoreError> {
        Ok(self.content("submit an activity")?.submit_activity(token, outcome))
    }

    async fn get(&self, instance: &InstanceId) -> Result<Option<InstanceRecord>, StoreError> {
        let shard = self.content("get an instance")?.shards.of(instance);
        let found = shard.get(instance).map(|found| InstanceRecord::Instance {
            header: found.header(),
            data: found.data.clone(),
            attributes: found.attributes().to_vec(),
        });
        Ok(found.or_else(|| shard.tombstone(instance).cloned().map(InstanceRecord::Deleted)))
    }

    async fn find_by_key(&self, definition: &str, business_key: &str) -> Result<Option<InstanceId>, StoreError> {
        Ok(self.content("find a business key")?.common().holder(definition, business_key))
    }

    async fn find(&self, query: &InstanceQuery) -> Result<Page<InstanceSummary>, StoreError> {
        self.content("find instances").map(|content| content.find(query))
    }

    async fn history(&self, instance: &InstanceId, after: i64, limit: usize) -> Result<Page<PointerRecord>, StoreError> {
        let shard = self.content("read a history")?.shards.of(instance);
        let mut items = shard.get(instance).map(|found| found.history(after, limit.saturating_add(1))).unwrap_or_default();
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(Page { items, more })
    }

    async fn errors(&self, instance: &InstanceId) -> Result<Vec<ErrorRecord>, StoreError> {
        let shard = self.content("read errors")?.shards.of(instance);
        Ok(shard.get(instance).map(Instance::errors).unwrap_or_default())
    }

    async fn statistics(&self) -> Result<StoreStatistics, StoreError> {
        self.content("count").map(Content::statistics)
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<PurgeReport, StoreError> {
        self.content("purge").map(|content| content.purge(request))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.content("tell the time").map(|content| content.clock.now())
    }

    async fn stop(&self, _grace: Duration) -> Result<(), StoreError> {
        self.stopped.store(true, Ordering::Release);
        Ok(())
    }
}

impl Content {
    /// Whether an open instance has this shape.
    fn is_used(&self, shape: &DefinitionShape) -> bool {
        let Some(kind) = self.known_kind(&shape.definition, shape.version) else { return false };
        self.shards.each().any(|shard| {
            let mut instances = shard.order.iter().filter_map(|id| shard.get(id));
            instances.any(|found| {
                found.kind.number == kind.number && !found.status.is_terminal() && found.fingerprint == shape.fingerprint
            })
        })
    }

    fn claim_activity(&self, names: &[String], lease: Duration) -> Option<ActivityClaim> {
        let mut common = self.common();
        let now = self.clock.now();
        let expires = add(now, lease);
        let mut found = None;
        let ((instance, activity), token) = common.activities.claim(names, now, expires, |(instance, activity)| {
            let shard = self.shards.of(instance);
            let runnable = shard.get(instance).filter(|found| found.status == latchwork_core::store::WorkflowStatus::Runnable);
            found = runnable.and_then(|runnable| runnable.activities.get(activity)).cloned();
            found.is_some()
        })?;
        let found = found?;
        Some(ActivityClaim { token, instance, activity, name: found.name, parameters: found.parameters, expires })
    }

    fn submit_activity(&self, token: &ActivityToken, outcome: ActivityOutcome) -> SubmitOutcome {
        let mut common = self.common();
        let now = self.clock.now();
        let Some((instance, activity)) = common.activities.submit(token, now) else { return SubmitOutcome::Refused };
        let control = Control::ActivityResult { activity, outcome };
        let mut shard = self.shards.of(&instance);
        match shard.append(&instance, control, now, &self.row_ids) {
            AppendOutcome::Appended(item) => SubmitOutcome::Accepted(item),
            AppendOutcome::Ended(_) | AppendOutcome::Unknown => SubmitOutcome::Refused,
        }
    }

    fn purge(&self, request: &PurgeRequest) -> PurgeReport {
        let mut common = self.common();
        let now = self.clock.now();
        let before = |age: Option<Duration>| earlier(now, age?);
        let mut report = PurgeReport::default();
        if let Some(before) = before(request.tombstones) {
            for mut shard in self.shards.each() {
                let left = request.limit.saturating_sub(usize::try_from(report.tombstones).unwrap_or(usize::MAX));
                for tombstone in shard.forget_before(before, left) {
                    report.tombstones += 1;
                    if let Some(key) = &tombstone.business_key {
                        common.free_key(&tombstone.definition, key);
                    }
                }
                report.more |= shard.has_buried_before(before);
            }
        }
        if let Some(before) = before(request.instances) {
            for mut shard in self.shards.each() {
                let left = request.limit.saturating_sub(usize::try_from(report.instances).unwrap_or(usize::MAX));
                let mut old = shard.ended_before(before, &request.statuses, left.saturating_add(1));
                report.more |= old.len() > left;
                old.truncate(left);
                for id in old {
                    shard.bury(&id, now);
                    report.instances += 1;
                }
            }
        }
        if let Some(before) = before(request.events) {
            let (removed, more) = common.channels.purge(before, request.limit);
            report.events = removed;
            report.more |= more;
        }
        report
    }
}

/// So long before; `None` when there is no such time, and so nothing older.
fn earlier(time: Timestamp, span: Duration) -> Option<Timestamp> {
    let micros = i64::try_from(span.as_micros()).ok()?;
    Timestamp::from_timestamp_micros(time.timestamp_micros().checked_sub(micros)?)
}
