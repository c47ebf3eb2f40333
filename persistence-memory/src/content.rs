//! What all handles of a store share, and how it is written.

use crate::{
    activity::Activities,
    channel::{Channels, StoredEvent},
    instance::{Instance, Kind, RowIds},
    shard::{HeldShards, ShardSet, Shards, lock},
};
use latchwork_core::{
    clock::{Clock, Timestamp},
    queue::WorkItem,
    store::{
        AppendOutcome, Checkpoint, CheckpointOutcome, Committed, Control, CreateOutcome, DefinitionShape, InstanceId, NewEvent,
        NewInstance, StoreError, StoreErrorKind, Subscription, SubscriptionId,
    },
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

/// What does not belong to one instance. Its lock is taken before any shard's, never after.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub(crate) channels: Channels,
    pub(crate) activities: Activities,
    /// By definition and business key.
    pub(crate) keys: HashMap<Arc<str>, HashMap<Box<str>, InstanceId>>,
    pub(crate) definitions: HashMap<(Arc<str>, u32), DefinitionShape>,
    pub(crate) identity: Option<latchwork_core::store::ClusterIdentity>,
}

/// By definition and version.
type Kinds = HashMap<Arc<str>, HashMap<u32, Arc<Kind>>>;

/// The content of a store.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) domain: String,
    pub(crate) largest_data: usize,
    pub(crate) shards: Shards,
    common: Mutex<Common>,
    kinds: RwLock<Kinds>,
    pub(crate) row_ids: RowIds,
}

impl Content {
    pub(crate) fn new(clock: Arc<dyn Clock>, domain: String, largest_data: usize) -> Self {
        Self {
            clock,
            domain,
            largest_data,
            shards: Shards::new(),
            common: Mutex::default(),
            kinds: RwLock::default(),
            row_ids: RowIds::default(),
        }
    }

    pub(crate) fn common(&self) -> MutexGuard<'_, Common> {
        lock(&self.common)
    }

    /// The kind of a definition's version, when there ever was an instance of it.
    pub(crate) fn known_kind(&self, definition: &str, version: u32) -> Option<Arc<Kind>> {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        kinds.get(definition)?.get(&version).cloned()
    }

    fn kind(&self, definition: &Arc<str>, version: u32) -> Arc<Kind> {
        if let Some(kind) = self.known_kind(definition, version) {
            return kind;
        }
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        let number = kinds.values().map(HashMap::len).sum();
        let versions = kinds.entry(definition.clone()).or_default();
        versions.entry(version).or_insert_with(|| Arc::new(Kind { number, definition: definition.clone(), version })).clone()
    }

    fn too_large(&self, action: &str) -> StoreError {
        StoreError::new(StoreErrorKind::TooLarge, &self.domain, action)
            .with_advice(format!("keep the data below {} bytes of JSON", self.largest_data))
    }

    pub(crate) fn create(&self, instances: &[NewInstance]) -> Result<Vec<CreateOutcome>, StoreError> {
        if instances.iter().any(|instance| instance.data.as_str().len() > self.largest_data) {
            return Err(self.too_large("create instances"));
        }
        let mut common = instances.iter().any(|instance| instance.business_key.is_some()).then(|| self.common());
        let now = self.clock.now();
        let create = |instance: &NewInstance| {
            // Without a key the shard alone decides; with one, the lock of the keys is held as well.
            let taken = instance.business_key.as_deref().and_then(|key| common.as_mut()?.holder(&instance.definition, key));
            if let Some(holder) = taken.filter(|holder| *holder != instance.id) {
                let known = self.shards.of(&instance.id).knows(&instance.id);
                let status = self.shards.of(&holder).status(&holder);
                if let Some(status) = status.filter(|_| !known) {
                    return CreateOutcome::Exists { instance: holder, status };
                }
            }
            let kind = self.kind(&instance.definition, instance.version);
            let mut shard = self.shards.of(&instance.id);
            if !shard.knows(&instance.id) {
                if let (Some(common), Some(key)) = (&mut common, &instance.business_key) {
                    common.take_key(&instance.definition, key, &instance.id);
                }
                shard.insert(Instance::new(instance.clone(), kind, now));
            }
            CreateOutcome::Created
        };
        Ok(instances.iter().map(create).collect())
    }

    /// Publishes events; gives the instances that they wait for, visible now.
    pub(crate) fn publish(&self, events: &[NewEvent]) -> Vec<WorkItem> {
        let mut common = self.common();
        let now = self.clock.now();
        let mut set = ShardSet::default();
        common.waiting_for(events, &mut set);
        let mut shards = self.shards.hold(set);
        common.publish(events.to_vec(), &mut shards, now, &self.row_ids);
        common.holding(events, &mut shards, now)
    }

    /// Writes one checkpoint.
    pub(crate) fn commit(&self, checkpoint: Arc<Checkpoint>) -> CheckpointOutcome {
        let too_large = |data: &latchwork_core::store::Encoded| data.as_str().len() > self.largest_data;
        if checkpoint.data.as_ref().is_some_and(too_large) || checkpoint.children.iter().any(|child| too_large(&child.data)) {
            return CheckpointOutcome::Failed(self.too_large("commit a checkpoint"));
        }
        let c = &*checkpoint;
        let alone = c.subscriptions.is_empty()
            && c.ended_subscriptions.is_empty()
            && c.activities.is_empty()
            && c.ended_activities.is_empty()
            && c.events.is_empty()
            && c.children.is_empty()
            && c.messages.is_empty();
        if alone {
            // One lookup decides and writes; the checkpoint stays behind when it needs more than its own instance.
            let id = c.instance.clone();
            let mut pending = Some(checkpoint);
            let answer = self.shards.of(&id).change(&id, |instance| self.commit_alone(instance, &mut pending));
            return match (answer, pending) {
                (Some(Some(outcome)), _) => outcome,
                (Some(None), Some(checkpoint)) => self.commit_with_common(checkpoint),
                (_, _) => CheckpointOutcome::Refused { stored: None },
            };
        }
        self.commit_with_common(checkpoint)
    }

    /// Writes a checkpoint that touches its own instance only; `None`, with the checkpoint left, when it turns out to end waits.
    fn commit_alone(&self, instance: &mut Instance, pending: &mut Option<Arc<Checkpoint>>) -> Option<CheckpointOutcome> {
        let checkpoint = pending.as_ref()?;
        if let Some(settled) = settled(instance, checkpoint, self.clock.now()) {
            return Some(settled);
        }
        if !instance.is_alone(checkpoint) {
            return None;
        }
        let mut checkpoint = Arc::unwrap_or_clone(pending.take()?);
        let now = self.clock.now();
        instance.write(&mut checkpoint, now);
        let inbox = instance.visible_inbox(now);
        Some(CheckpointOutcome::Committed(Committed { revision: instance.revision, now, inbox, wake: Vec::new() }))
    }

    /// Writes a checkpoint that touches waits, activities, events or other instances.
    fn commit_with_common(&self, checkpoint: Arc<Checkpoint>) -> CheckpointOutcome {
        let mut common = self.common();
        let mut set = ShardSet::default();
        set.add(&checkpoint.instance);
        checkpoint.children.iter().for_each(|child| set.add(&child.id));
        checkpoint.messages.iter().for_each(|(to, _)| set.add(to));
        common.waiting_for(&checkpoint.events, &mut set);
        let mut shards = self.shards.hold(set);
        match shards.of(&checkpoint.instance).and_then(|shard| shard.get(&checkpoint.instance)) {
            None => return CheckpointOutcome::Refused { stored: None },
            Some(instance) => {
                if let Some(settled) = settled(instance, &checkpoint, self.clock.now()) {
                    return settled;
                }
            }
        }
        let mut checkpoint = Arc::unwrap_or_clone(checkpoint);
        let id = checkpoint.instance.clone();
        let now = self.clock.now();
        if let Some(shard) = shards.of(&id) {
            shard.change(&id, |instance| common.write(instance, &mut checkpoint, now, &self.row_ids));
        }
        let mut wake = Vec::new();
        for child in checkpoint.children {
            wake.extend(self.create_child(child, &mut common, &mut shards, now));
        }
        let events = checkpoint.events;
        common.publish(events.clone(), &mut shards, now, &self.row_ids);
        wake.extend(common.holding(&events, &mut shards, now));
        for (to, control) in checkpoint.messages {
            wake.extend(self.send(&to, control, &mut shards, now));
        }
        let mut seen = BTreeSet::from([id.clone()]);
        wake.retain(|item| seen.insert(item.instance.clone()));
        match shards.of(&id).and_then(|shard| shard.get(&id)) {
            None => CheckpointOutcome::Refused { stored: None },
            Some(instance) => {
                let inbox = instance.visible_inbox(now);
                CheckpointOutcome::Committed(Committed { revision: instance.revision, now, inbox, wake })
            }
        }
    }

    fn create_child(
        &self,
        child: NewInstance,
        common: &mut Common,
        shards: &mut HeldShards<'_>,
        now: Timestamp,
    ) -> Option<WorkItem> {
        let holder = child.business_key.as_deref().and_then(|key| common.holder(&child.definition, key));
        let shard = shards.of(&child.id)?;
        if shard.knows(&child.id) || holder.is_some_and(|holder| holder != child.id) {
            return None;
        }
        if let Some(key) = &child.business_key {
            common.take_key(&child.definition, key, &child.id);
        }
        let item = child.work_item();
        let kind = self.kind(&child.definition, child.version);
        shard.insert(Instance::new(child, kind, now));
        Some(item)
    }

    fn send(&self, to: &InstanceId, control: Control, shards: &mut HeldShards<'_>, now: Timestamp) -> Option<WorkItem> {
        match shards.of(to)?.append(to, control, now, &self.row_ids) {
            AppendOutcome::Appended(item) => Some(item),
            AppendOutcome::Ended(_) | AppendOutcome::Unknown => None,
        }
    }
}

/// The answer to a checkpoint that is not to be written to this instance: it was written already, and its answer did not arrive; or
/// it cannot be.
fn settled(instance: &Instance, checkpoint: &Checkpoint, now: Timestamp) -> Option<CheckpointOutcome> {
    if instance.writer() == Some(checkpoint.id) {
        let (revision, inbox) = (instance.revision, instance.visible_inbox(now));
        return Some(CheckpointOutcome::Committed(Committed { revision, now, inbox, wake: Vec::new() }));
    }
    let refused = instance.revision != checkpoint.expected || instance.status.is_terminal();
    refused.then_some(CheckpointOutcome::Refused { stored: Some(instance.revision) })
}

impl Common {
    /// Who has a business key.
    pub(crate) fn holder(&self, definition: &str, key: &str) -> Option<InstanceId> {
        self.keys.get(definition)?.get(key).cloned()
    }

    fn take_key(&mut self, definition: &Arc<str>, key: &str, id: &InstanceId) {
        self.keys.entry(definition.clone()).or_default().insert(key.into(), id.clone());
    }

    /// Frees a business key.
    pub(crate) fn free_key(&mut self, definition: &str, key: &str) {
        if let Some(keys) = self.keys.get_mut(definition) {
            keys.remove(key);
            if keys.is_empty() {
                self.keys.remove(definition);
            }
        }
    }

    /// The part of a checkpoint that concerns its own instance.
    fn write(&mut self, instance: &mut Instance, checkpoint: &mut Checkpoint, now: Timestamp, ids: &RowIds) {
        let id = checkpoint.instance.clone();
        let bare = instance.write(checkpoint, now);
        if instance.status.is_terminal() {
            for wait in std::mem::take(&mut instance.waits).values() {
                self.channels.remove_wait(&id, &wait.subscription);
            }
            for activity in std::mem::take(&mut instance.activities).values() {
                self.activities.remove(&(id.clone(), activity.id));
            }
            return;
        }
        let mut freed: Vec<(Subscription, Arc<StoredEvent>)> = Vec::new();
        let mut new: Vec<(i64, SubscriptionId)> = Vec::new();
        for (subscription, event) in bare {
            new.push((subscription.sequence, subscription.id));
            freed.extend(event.map(|event| (subscription, event)));
        }
        for ended in checkpoint.ended_subscriptions.drain(..) {
            let event = instance.unmatch(ended);
            let Some(wait) = instance.waits.remove(&ended) else { continue };
            self.channels.remove_wait(&id, &wait.subscription);
            freed.extend(event.map(|event| (wait.subscription, event)));
        }
        for subscription in checkpoint.subscriptions.drain(..) {
            new.push((subscription.sequence, subscription.id));
            self.channels.add_wait(&id, &subscription);
            instance.waits.insert(subscription.id, crate::instance::Wait { subscription, matched: None });
        }
        for (subscription, event) in freed {
            // Those that look for themselves below may find an earlier one.
            let mut waits = instance.waits_like(&subscription);
            waits.retain(|wait| !new.iter().any(|(_, new)| new == wait));
            instance.offer(&waits, &event, now, ids);
        }
        new.sort_unstable();
        for (_, wait) in new {
            let Some(subscription) = instance.waits.get(&wait).map(|wait| &wait.subscription) else { continue };
            if let Some(channel) = self.channels.get(&subscription.name, &subscription.key) {
                instance.seek(wait, channel, now, ids);
            }
        }
        for ended in checkpoint.ended_activities.drain(..) {
            instance.activities.remove(&ended);
            self.activities.remove(&(id.clone(), ended));
        }
        for activity in checkpoint.activities.drain(..) {
            self.activities.add((id.clone(), activity.id), activity.name.clone());
            instance.activities.insert(activity.id, activity);
        }
    }

    /// Adds the shards of those who wait for any of these events.
    fn waiting_for(&self, events: &[NewEvent], set: &mut ShardSet) {
        for channel in self.distinct_channels(events) {
            channel.waits.iter().for_each(|((id, _), ())| set.add(id));
        }
    }

    fn distinct_channels(&self, events: &[NewEvent]) -> Vec<&crate::channel::Channel> {
        let mut channels: Vec<_> = events.iter().filter_map(|event| self.channels.get(&event.name, &event.key)).collect();
        channels.sort_unstable_by_key(|channel| channel.number);
        channels.dedup_by_key(|channel| channel.number);
        channels
    }

    /// Adds events, and offers them to those who wait.
    fn publish(&mut self, events: Vec<NewEvent>, shards: &mut HeldShards<'_>, now: Timestamp, ids: &RowIds) {
        for event in events {
            let (name, key) = (event.name.clone(), event.key.clone());
            let Some(event) = self.channels.add_event(event, now) else { continue };
            let Some(channel) = self.channels.get(&name, &key) else { continue };
            let mut waits = channel.waits.iter().map(|((id, wait), ())| (id, *wait)).peekable();
            while let Some((id, first)) = waits.next() {
                let mut of_instance = vec![first];
                while let Some((_, wait)) = waits.next_if(|(other, _)| *other == id) {
                    of_instance.push(wait);
                }
                if let Some(shard) = shards.of(id) {
                    shard.change(id, |instance| offer_by_slot(instance, of_instance, &event, now, ids));
                }
            }
        }
    }

    /// The instances that have one of these events in their inbox, visible now.
    fn holding(&self, events: &[NewEvent], shards: &mut HeldShards<'_>, now: Timestamp) -> Vec<WorkItem> {
        let published: BTreeSet<_> = events.iter().map(|event| &event.id).collect();
        let mut wake = Vec::new();
        for channel in self.distinct_channels(events) {
            let mut last = None;
            for ((id, _), ()) in channel.waits.iter() {
                if last.replace(id) == Some(id) {
                    continue;
                }
                let Some(instance) = shards.of(id).and_then(|shard| shard.get(id)) else { continue };
                if instance.holds_visible(now, |event| published.contains(event)) {
                    wake.push(instance.work_item());
                }
            }
        }
        if events.len() > 1 {
            let mut seen = BTreeSet::new();
            wake.retain(|item| seen.insert(item.instance.clone()));
        }
        wake
    }
}

/// Offers an event to each slot among these waits of one instance and channel.
fn offer_by_slot(instance: &mut Instance, waits: Vec<SubscriptionId>, event: &Arc<StoredEvent>, now: Timestamp, ids: &RowIds) {
    if let [_] = waits.as_slice() {
        return instance.offer(&waits, event, now, ids);
    }
    let placed = |wait: SubscriptionId| {
        let subscription = &instance.waits.get(&wait)?.subscription;
        Some((subscription.slot.clone(), subscription.sequence, wait))
    };
    let mut placed: Vec<_> = waits.into_iter().filter_map(placed).collect();
    placed.sort_unstable();
    for slot in placed.chunk_by(|one, other| one.0 == other.0) {
        let waits: Vec<_> = slot.iter().map(|(_, _, wait)| *wait).collect();
        instance.offer(&waits, event, now, ids);
    }
}
