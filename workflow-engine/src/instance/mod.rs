//! One instance in memory: its open pointers, its data, and what changed since the last checkpoint.
//!
//! No I/O and no time of its own: the burst tells it what happened (`body_ended`, `apply_inbox`, `fire_timers`) and takes
//! what there is to do (`next_ready`, `take_checkpoint`).

mod cancel;
mod changes;
mod child;
mod ended;
mod faults;
mod flow;
mod inbox;
mod items;
mod load;
mod pointer;
mod saga;
mod side;
mod waits;

pub(crate) use changes::{StepOfCheckpoint, Unwritable};
pub(crate) use child::child_in;
pub(crate) use pointer::{ChildEnd, Pointer, PointerMap};

use crate::{
    compression::Compression,
    data::AnyData,
    definition::{Definition, NodeKind},
    error::{StepError, StepResult},
    policy::Retry,
};
use changes::Changes;
use flow::Task;
use latchwork_core::{
    clock::{self, Timestamp},
    hub::LifeCycleKind,
    limits,
    store::{CheckpointId, ErrorRecord, InboxId, InstanceId, ParentLink, PointerId, Revision, SubscriptionId, WorkflowStatus},
};
use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// A saga without a policy of its own is tried once.
static ONCE: std::sync::LazyLock<Retry> = std::sync::LazyLock::new(Retry::never);

/// What holds for all instances of a host.
#[derive(Debug)]
pub(crate) struct Rules {
    /// For steps without a policy of their own or of their definition.
    pub(crate) retry: Retry,
    pub(crate) data_limit: usize,
    pub(crate) compression: Compression,
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) definition: Arc<Definition>,
    pub(crate) id: InstanceId,
    pub(crate) reference: Option<String>,
    pub(crate) business_key: Option<String>,
    pub(crate) status: WorkflowStatus,
    pub(crate) reason: Option<String>,
    parent: Option<ParentLink>,
    pub(crate) created: Timestamp,
    revision: Revision,
    fault_count: u32,
    /// The checkpoint before which no body starts: it says that the burst before was cut short.
    held_for: u64,
    /// No body starts before: too many bursts in a row were cut short.
    held_until: Option<Timestamp>,
    /// Whether the stored due time has come, so that it need not be written again while there is work.
    stored_due_has_come: bool,
    rules: Arc<Rules>,

    data: Arc<AnyData>,
    pointers: PointerMap,
    last_sequence: i64,
    /// Bodies that can run.
    ready: VecDeque<PointerId>,
    /// Bodies that can run once the next checkpoint is committed.
    blocked: Vec<PointerId>,
    timers: BTreeSet<(Timestamp, PointerId)>,
    waits: HashMap<SubscriptionId, PointerId>,
    /// Open pointers with a condition to give them up.
    conditional: BTreeSet<PointerId>,
    /// Whether the data changed since the conditions were last asked.
    data_changed: bool,
    /// Running bodies whose pointers were cancelled.
    cut: Vec<PointerId>,
    /// Sagas that have failed and do not know yet what to undo.
    undoing: BTreeSet<PointerId>,
    running: usize,

    /// Control flow still to be advanced.
    tasks: VecDeque<Task>,
    /// Pointers opened that do or wait for something; see `Pointer::progress_at`.
    leaves: u64,
    idle_jumps: usize,

    burst: u128,
    /// The number of the next checkpoint, from 1.
    next_number: u64,
    committed_number: u64,
    changes: Changes,
    /// Inbox rows seen in this burst.
    seen: HashSet<InboxId>,
    /// What happened since the last checkpoint was taken, to be told after its commit.
    happened: Vec<LifeCycleKind>,
}

impl Instance {
    /// The body that can run next; it counts as running from now on.
    pub(crate) fn next_ready(&mut self, now: Timestamp) -> Option<PointerId> {
        if self.status != WorkflowStatus::Runnable || self.is_held(now) {
            return None;
        }
        while let Some(id) = self.ready.pop_front() {
            if let Some(pointer) = self.pointers.get_mut(&id)
                && pointer.can_run()
            {
                pointer.running = true;
                pointer.may_have_run = false;
                // Stored with whatever the body leads to.
                pointer.record.started = Some(clock::whole_micros(now));
                self.running += 1;
                return Some(id);
            }
        }
        None
    }

    /// Whether the body that could run next shares a transaction with its checkpoint.
    pub(crate) fn next_is_transactional(&self) -> bool {
        if !self.definition.has_transactions {
            return false;
        }
        let next = self.ready.iter().find_map(|id| self.pointers.get(id).filter(|pointer| pointer.can_run()));
        next.is_some_and(|pointer| matches!(&self.definition.node(pointer.node).kind, NodeKind::Step(step) if step.transactional))
    }

    /// That the instance was started, when it was not told yet.
    pub(crate) fn take_started(&mut self) -> Option<LifeCycleKind> {
        let is_first = matches!(self.happened.first(), Some(LifeCycleKind::Started));
        is_first.then(|| self.happened.remove(0))
    }

    /// Keeps an error of what stands around the workflow.
    pub(crate) fn keep_error(&mut self, place: &str, message: &str, attempt: u32, now: Timestamp) {
        let message = limits::cut(message, limits::ERROR_TEXT_BYTES).to_owned();
        let (instance, pointer, time) = (self.id.clone(), PointerId::from_u128(0), clock::whole_micros(now));
        self.changes.errors.push(ErrorRecord { instance, pointer, step: place.into(), attempt, time, message });
    }

    /// Bodies that could run now.
    pub(crate) fn ready_count(&self, now: Timestamp) -> usize {
        if self.status == WorkflowStatus::Runnable && !self.is_held(now) { self.ready.len() } else { 0 }
    }

    pub(crate) fn pointer(&self, id: PointerId) -> Option<&Pointer> {
        self.pointers.get(&id)
    }

    pub(crate) fn data(&self) -> &Arc<AnyData> {
        &self.data
    }

    /// The earliest time at which a pointer wakes by itself.
    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        if self.status != WorkflowStatus::Runnable {
            return None;
        }
        let timer = self.timers.first().map(|(due, _)| *due);
        match self.held_until.filter(|_| self.has_work()) {
            Some(until) => Some(timer.map_or(until, |timer| timer.min(until))),
            None => timer,
        }
    }

    /// Whether there is something to do without waiting for anybody: bodies that run or can run, or a saga that is to be undone.
    fn has_work(&self) -> bool {
        self.running > 0 || !self.undoing.is_empty() || !self.ready.is_empty() || !self.blocked.is_empty()
    }

    /// The steps whose bodies run.
    pub(crate) fn running_steps(&self) -> Vec<Arc<str>> {
        self.pointers.values().filter(|pointer| pointer.running).map(|pointer| pointer.record.step.clone()).collect()
    }

    /// All bodies were dropped: none has completed, so each can run again.
    pub(crate) fn bodies_dropped(&mut self) {
        self.running = 0;
        for (id, pointer) in &mut self.pointers {
            if std::mem::take(&mut pointer.running) {
                self.ready.push_back(*id);
            }
        }
    }

    /// A body was told to end early, and did so without being done: it can run again, and has not failed.
    pub(crate) fn body_cut_short(&mut self, id: PointerId) {
        if let Some(pointer) = self.pointers.get_mut(&id)
            && std::mem::take(&mut pointer.running)
        {
            self.running = self.running.saturating_sub(1);
            self.ready.push_back(id);
        }
    }

    /// Bodies that still run although their pointers were cancelled, since it was last asked.
    pub(crate) fn take_cut(&mut self) -> Vec<PointerId> {
        std::mem::take(&mut self.cut)
    }

    /// What happened since it was last asked.
    pub(crate) fn take_happened(&mut self) -> Vec<LifeCycleKind> {
        std::mem::take(&mut self.happened)
    }

    /// The id of the next checkpoint.
    fn checkpoint_id(&self) -> CheckpointId {
        CheckpointId { burst: self.burst, number: self.next_number }
    }

    /// Lets the user's code change the data. What the data was is kept: code that fails half-way must not leave half.
    fn change_data(&mut self, change: impl FnOnce(&mut AnyData) -> StepResult<()>) -> StepResult<()> {
        let before = self.data.clone();
        (self.definition.data.unshare)(&mut self.data);
        let data = &mut self.data;
        let changed = guarded(|| change(Arc::get_mut(data).ok_or_else(crate::data::wrong_type)?));
        match changed {
            Ok(()) => {
                self.changes.data = true;
                self.data_changed = true;
            }
            Err(_) => self.data = before,
        }
        changed
    }

    fn retry_of<'a>(&'a self, pointer: &Pointer) -> &'a Retry {
        let own = match &self.definition.node(pointer.node).kind {
            NodeKind::Step(step) => step.retry.as_ref(),
            NodeKind::Saga(saga) => return saga.retry.as_ref().unwrap_or(&ONCE),
            _ => None,
        };
        own.or(self.definition.retry.as_ref()).unwrap_or(&self.rules.retry)
    }
}

/// Runs the user's code so that a panic in it is an error of the step.
pub(crate) fn guarded<T>(code: impl FnOnce() -> StepResult<T>) -> StepResult<T> {
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// The error of a step whose code panicked.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> StepError {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    StepError::from(format!("the step's code panicked: {}", text.unwrap_or("no message")))
}
