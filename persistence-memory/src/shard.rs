//! Instances, spread over shards by their ids, each behind its own short lock.

use crate::{
    id_hash::IdHash,
    instance::{Instance, RowIds},
};
use latchwork_core::{
    clock::Timestamp,
    limits::TOMBSTONE_RESULT_BYTES,
    store::{AppendOutcome, Control, InstanceId, Tombstone, WorkflowStatus},
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many shards there are; their sets fit in the bits of a [`ShardSet`].
const SHARDS: usize = 64;

/// A part of the instances, with the indexes over them.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    instances: HashMap<InstanceId, Box<Instance>, IdHash>,
    /// All ids, in order.
    pub(crate) order: BTreeSet<InstanceId>,
    /// By kind: from when on an instance has something to do.
    pub(crate) runnable: Vec<BTreeSet<(Timestamp, InstanceId)>>,
    /// By status: when the instances ended.
    ended: [BTreeSet<(Timestamp, InstanceId)>; WorkflowStatus::ALL.len()],
    tombstones: HashMap<InstanceId, Tombstone, IdHash>,
    /// By the time of deletion.
    buried: BTreeSet<(Timestamp, InstanceId)>,
    statuses: [u64; WorkflowStatus::ALL.len()],
    pub(crate) inbox_rows: u64,
}

fn place(status: WorkflowStatus) -> usize {
    match status {
        WorkflowStatus::Runnable => 0,
        WorkflowStatus::Suspended => 1,
        WorkflowStatus::Complete => 2,
        WorkflowStatus::Terminated => 3,
    }
}

impl Shard {
    pub(crate) fn get(&self, id: &InstanceId) -> Option<&Instance> {
        self.instances.get(id).map(Box::as_ref)
    }

    pub(crate) fn tombstone(&self, id: &InstanceId) -> Option<&Tombstone> {
        self.tombstones.get(id)
    }

    /// Whether the id is, or was, in use.
    pub(crate) fn knows(&self, id: &InstanceId) -> bool {
        self.instances.contains_key(id) || self.tombstones.contains_key(id)
    }

    pub(crate) fn status(&self, id: &InstanceId) -> Option<WorkflowStatus> {
        self.get(id).map(|instance| instance.status).or_else(|| self.tombstone(id).map(|tombstone| tombstone.status))
    }

    pub(crate) fn count(&self, status: WorkflowStatus) -> u64 {
        self.statuses.get(place(status)).copied().unwrap_or_default()
    }

    fn count_mut(&mut self, status: WorkflowStatus) -> Option<&mut u64> {
        self.statuses.get_mut(place(status))
    }

    pub(crate) fn insert(&mut self, instance: Instance) {
        let id = instance.id.clone();
        if let Some(count) = self.count_mut(instance.status) {
            *count += 1;
        }
        self.order.insert(id.clone());
        self.instances.insert(id.clone(), Box::new(instance));
        self.change(&id, |_| ());
    }

    /// The one way to change an instance: it keeps the indexes and counts right.
    pub(crate) fn change<R>(&mut self, id: &InstanceId, change: impl FnOnce(&mut Instance) -> R) -> Option<R> {
        let instance = self.instances.get_mut(id)?;
        let (status_before, rows_before) = (instance.status, instance.inbox.len());
        let answer = change(instance);
        let (status, rows, ended) = (instance.status, instance.inbox.len(), instance.ended);
        let due = instance.runnable_from();
        if due != instance.indexed {
            let before = std::mem::replace(&mut instance.indexed, due);
            if self.runnable.len() <= instance.kind.number {
                self.runnable.resize_with(instance.kind.number + 1, BTreeSet::new);
            }
            if let Some(index) = self.runnable.get_mut(instance.kind.number) {
                let mut key = (Timestamp::MIN_UTC, instance.id.clone());
                if let Some(before) = before {
                    key.0 = before;
                    index.remove(&key);
                }
                if let Some(due) = due {
                    key.0 = due;
                    index.insert(key);
                }
            }
        }
        self.inbox_rows = self.inbox_rows.saturating_add(rows as u64).saturating_sub(rows_before as u64);
        if status != status_before {
            if let Some(count) = self.count_mut(status_before) {
                *count = count.saturating_sub(1);
            }
            if let Some(count) = self.count_mut(status) {
                *count += 1;
            }
            if let Some(ended) = ended
                && let Some(index) = self.ended.get_mut(place(status))
            {
                index.insert((ended, id.clone()));
            }
        }
        Some(answer)
    }

    /// Appends a control message to an open instance.
    pub(crate) fn append(&mut self, id: &InstanceId, control: Control, now: Timestamp, ids: &RowIds) -> AppendOutcome {
        match self.status(id) {
            None => AppendOutcome::Unknown,
            Some(status) if status.is_terminal() => AppendOutcome::Ended(status),
            Some(_) => {
                let item = self.change(id, |instance| {
                    instance.append(control, now, ids);
                    instance.work_item()
                });
                item.map_or(AppendOutcome::Unknown, AppendOutcome::Appended)
            }
        }
    }

    /// The earliest due time of a Runnable instance. The index also holds inbox times, which are never later.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let mut earliest: Option<Timestamp> = None;
        for index in &self.runnable {
            for (from, id) in index {
                if earliest.is_some_and(|earliest| *from >= earliest) {
                    break;
                }
                let due = self.get(id).filter(|instance| instance.status == WorkflowStatus::Runnable).and_then(|found| found.due);
                earliest = earliest.into_iter().chain(due).min();
            }
        }
        earliest
    }

    /// Those of these statuses that ended before this time, oldest first in each status.
    pub(crate) fn ended_before(&self, before: Timestamp, statuses: &[WorkflowStatus], limit: usize) -> Vec<InstanceId> {
        let wanted = WorkflowStatus::ALL.into_iter().filter(|status| statuses.is_empty() || statuses.contains(status));
        let old = wanted.filter_map(|status| self.ended.get(place(status)));
        let old = old.flat_map(|index| index.iter().take_while(|(ended, _)| *ended < before));
        old.map(|(_, id)| id).take(limit).cloned().collect()
    }

    /// Deletes an ended instance, and leaves a tombstone.
    pub(crate) fn bury(&mut self, id: &InstanceId, now: Timestamp) {
        let Some(ended) = self.get(id).and_then(|instance| instance.ended) else { return };
        let Some(instance) = self.instances.remove(id) else { return };
        if let Some(count) = self.count_mut(instance.status) {
            *count = count.saturating_sub(1);
        }
        self.order.remove(id);
        if let Some(index) = self.ended.get_mut(place(instance.status)) {
            index.remove(&(ended, id.clone()));
        }
        self.buried.insert((now, id.clone()));
        self.tombstones.insert(
            id.clone(),
            Tombstone {
                id: id.clone(),
                definition: instance.kind.definition.clone(),
                business_key: instance.business_key.map(String::from),
                status: instance.status,
                ended,
                result: Some(instance.data).filter(|data| data.as_str().len() <= TOMBSTONE_RESULT_BYTES),
            },
        );
    }

    /// Removes tombstones from before this time, oldest first.
    pub(crate) fn forget_before(&mut self, before: Timestamp, limit: usize) -> Vec<Tombstone> {
        let mut forgotten = Vec::new();
        while forgotten.len() < limit && self.buried.first().is_some_and(|(deleted, _)| *deleted < before) {
            let Some((_, id)) = self.buried.pop_first() else { break };
            forgotten.extend(self.tombstones.remove(&id));
        }
        forgotten
    }

    pub(crate) fn has_buried_before(&self, before: Timestamp) -> bool {
        self.buried.first().is_some_and(|(deleted, _)| *deleted < before)
    }
}

/// All shards. Whoever locks several locks them in ascending order; a single one may be locked at any time when no other is held.
#[derive(Debug)]
pub(crate) struct Shards(Vec<Mutex<Shard>>);

/// A set of shards.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardSet(u64);

impl ShardSet {
    pub(crate) fn add(&mut self, id: &InstanceId) {
        self.0 |= 1 << number_of(id);
    }
}

/// Ids end with random hexadecimal digits, which are spread evenly already.
fn number_of(id: &InstanceId) -> usize {
    let digit =
        |byte: u8| usize::from(if byte.is_ascii_digit() { byte - b'0' } else { byte.wrapping_sub(b'a').wrapping_add(10) });
    id.as_str().bytes().rev().take(2).fold(0, |sum, byte| sum * 16 + digit(byte)) % SHARDS
}

impl Shards {
    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    /// The shard of this instance.
    pub(crate) fn of(&self, id: &InstanceId) -> MutexGuard<'_, Shard> {
        // The number is a remainder of the count.
        #[allow(clippy::indexing_slicing, reason = "the number is below the count")]
        lock(&self.0[number_of(id)])
    }

    /// Each shard in turn.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.0.iter().map(lock)
    }

    /// These shards at the same time.
    pub(crate) fn hold(&self, set: ShardSet) -> HeldShards<'_> {
        let wanted = self.0.iter().enumerate().filter(|(number, _)| set.0 & (1 << number) != 0);
        HeldShards(wanted.map(|(number, shard)| (number, lock(shard))).collect())
    }
}

/// Locked shards.
#[derive(Debug)]
pub(crate) struct HeldShards<'a>(Vec<(usize, MutexGuard<'a, Shard>)>);

impl HeldShards<'_> {
    /// The shard of this instance; `None` when it is not one of those that were asked for.
    pub(crate) fn of(&mut self, id: &InstanceId) -> Option<&mut Shard> {
        let number = number_of(id);
        self.0.iter_mut().find(|(held, _)| *held == number).map(|(_, shard)| &mut **shard)
    }
}

/// A panic elsewhere cannot have left a half-made change: nothing in a locked section calls foreign code.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
