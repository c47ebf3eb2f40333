use super::{Instance, pointer::PointerState};
use crate::error::StepError;
use latchwork_core::{
    clock::{self, Timestamp},
    limits,
    store::{
        Activity, Checkpoint, Committed, ConsumedEvent, Control, Due, Encoded, ErrorRecord, HeaderUpdate, InboxId, InstanceId,
        NewEvent, NewInstance, PointerId, PointerRecord, PointerStatus, Subscription, SubscriptionId, WorkflowStatus,
    },
};
use std::sync::Arc;

/// What changed since the last checkpoint was taken.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Something that must be committed before the instance goes on or rests.
    pub(super) durable: bool,
    pub(super) header: bool,
    pub(super) data: bool,
    /// Open pointers to be written.
    pub(super) dirty: Vec<PointerId>,
    /// Pointers that were closed.
    pub(super) closed: Vec<PointerRecord>,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) ended_subscriptions: Vec<SubscriptionId>,
    pub(super) activities: Vec<Activity>,
    pub(super) ended_activities: Vec<SubscriptionId>,
    pub(super) applied: Vec<InboxId>,
    pub(super) consumed: Vec<ConsumedEvent>,
    pub(super) errors: Vec<ErrorRecord>,
    pub(super) children: Vec<NewInstance>,
    pub(super) events: Vec<NewEvent>,
    pub(super) messages: Vec<(InstanceId, Control)>,
    /// The steps whose bodies ended: to blame when the checkpoint can never be written.
    pub(super) ended_steps: Vec<StepOfCheckpoint>,
}

/// A step whose completion is part of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepOfCheckpoint {
    pub(crate) pointer: PointerId,
}

/// The data cannot be written.
#[derive(Debug)]
pub(crate) struct Unwritable {
    pub(crate) reason: String,
    pub(crate) steps: Vec<StepOfCheckpoint>,
}

impl Instance {
    /// Whether there is something that must be committed before the instance goes on.
    pub(crate) fn must_checkpoint(&self) -> bool {
        self.changes.durable
    }

    /// Whether there is anything that is not committed yet.
    pub(crate) fn has_changes(&self) -> bool {
        let changes = &self.changes;
        changes.durable
            || changes.header
            || changes.data
            || !(changes.dirty.is_empty() && changes.closed.is_empty() && changes.applied.is_empty())
    }

    pub(super) fn touch(&mut self, id: PointerId) {
        if let Some(pointer) = self.pointers.get_mut(&id)
            && !pointer.dirty
        {
            pointer.dirty = true;
            self.changes.dirty.push(id);
        }
    }

    /// A consistent cut of all that changed. `now` is the store's time as far as this node knows.
    pub(crate) fn take_checkpoint(&mut self, now: Timestamp) -> Result<(Arc<Checkpoint>, Vec<StepOfCheckpoint>), Unwritable> {
        let data = match self.changes.data.then(|| self.encoded_data()).transpose() {
            Ok(data) => data,
            Err(reason) => return Err(Unwritable { reason, steps: std::mem::take(&mut self.changes.ended_steps) }),
        };
        let changes = std::mem::take(&mut self.changes);
        let mut messages = changes.messages;
        messages.extend(self.tell_parent());
        let header = self.header_update(now);
        let mut checkpoint = Checkpoint::new(self.id.clone(), self.checkpoint_id(), self.revision, header);
        checkpoint.data = data;
        checkpoint.pointers = changes.closed;
        let compression = self.rules.compression;
        for state in checkpoint.pointers.iter_mut().filter_map(|pointer| pointer.state.as_mut()) {
            compression.pack_in_place(state);
        }
        for id in changes.dirty {
            let Some(pointer) = self.pointers.get_mut(&id) else { continue };
            pointer.dirty = false;
            // Only values that came from JSON or from `to_value` are in there, so encoding them cannot fail.
            let is_default = pointer.state == PointerState::default();
            let state = if is_default { None } else { Encoded::of(&pointer.state).ok() };
            pointer.record.state = state.map(|state| compression.pack(state));
            checkpoint.pointers.push(pointer.record.clone());
            if let Some(collection) = &mut pointer.collection
                && std::mem::take(&mut collection.dirty)
            {
                let state = collection.record.state.take();
                let mut record = collection.record.clone();
                record.state = state.map(|state| compression.pack(state));
                checkpoint.pointers.push(record);
            }
        }
        checkpoint.subscriptions = changes.subscriptions;
        checkpoint.ended_subscriptions = changes.ended_subscriptions;
        checkpoint.activities = changes.activities;
        checkpoint.ended_activities = changes.ended_activities;
        checkpoint.applied = changes.applied;
        checkpoint.consumed = changes.consumed;
        checkpoint.errors = changes.errors;
        checkpoint.children = changes.children;
        for child in &mut checkpoint.children {
            compression.pack_in_place(&mut child.data);
        }
        checkpoint.events = changes.events;
        checkpoint.messages = messages;
        self.next_number += 1;
        Ok((Arc::new(checkpoint), changes.ended_steps))
    }

    /// The checkpoint that was taken last is committed: bodies that waited for it can run.
    pub(crate) fn committed(&mut self, committed: &Committed) {
        self.revision = committed.revision;
        self.committed_number = self.next_number - 1;
        let reached = self.committed_number;
        for id in std::mem::take(&mut self.blocked) {
            match self.pointers.get(&id) {
                Some(pointer) if pointer.after <= reached => self.ready.push_back(id),
                Some(_) => self.blocked.push(id),
                None => {}
            }
        }
    }

    fn header_update(&mut self, now: Timestamp) -> HeaderUpdate {
        let has_work = self.has_work();
        let due = match self.status {
            WorkflowStatus::Runnable if has_work && let Some(until) = self.held_until.filter(|until| *until > now) => {
                self.stored_due_has_come = false;
                Due::At(clock::whole_micros(self.timers.first().map_or(until, |(due, _)| until.min(*due))))
            }
            WorkflowStatus::Runnable if has_work && self.stored_due_has_come => Due::Keep,
            WorkflowStatus::Runnable if has_work => {
                self.stored_due_has_come = true;
                Due::In(std::time::Duration::ZERO)
            }
            WorkflowStatus::Runnable => match self.timers.first() {
                Some((due, _)) => {
                    self.stored_due_has_come = *due <= now;
                    Due::At(clock::whole_micros(*due))
                }
                None => {
                    self.stored_due_has_come = false;
                    Due::Never
                }
            },
            WorkflowStatus::Suspended | WorkflowStatus::Complete | WorkflowStatus::Terminated => {
                self.stored_due_has_come = false;
                Due::Never
            }
        };
        HeaderUpdate { status: self.status, reason: self.reason.clone(), due, fault_count: self.fault_count }
    }

    fn encoded_data(&self) -> Result<Encoded, String> {
        let encoded =
            (self.definition.data.encode)(&*self.data).map_err(|error| format!("the data cannot be written as JSON: {error}"))?;
        let (bytes, limit) = (encoded.as_str().len(), self.rules.data_limit);
        if bytes > limit {
            return Err(format!("the data has {bytes} bytes of JSON, the limit is {limit} (option `data_limit`)"));
        }
        if !limits::json_depth_is_allowed(encoded.as_str()) {
            return Err(format!("the data nests deeper than {} levels", limits::JSON_DEPTH));
        }
        Ok(self.rules.compression.pack(encoded))
    }

    /// Keeps an error for whoever looks after the instance.
    pub(super) fn record_error(&mut self, id: PointerId, error: &StepError, now: Timestamp) -> String {
        let text = error.to_string();
        let message = limits::cut(&text, limits::ERROR_TEXT_BYTES).to_owned();
        if let Some(pointer) = self.pointers.get(&id) {
            // What is not a body has no tries; its only one is the first.
            let (step, attempt) = (pointer.record.step.clone(), pointer.record.attempts.max(1));
            tracing::warn!(instance = %self.id, step = %step, attempt, error = %message, "step failed");
            metrics::counter!("latchwork.step.errors").increment(1);
            self.happened.push(latchwork_core::hub::LifeCycleKind::Error { step: step.clone(), message: message.clone() });
            let time = clock::whole_micros(now);
            let record = ErrorRecord { instance: self.id.clone(), pointer: id, step, attempt, time, message: message.clone() };
            self.changes.errors.push(record);
        }
        message
    }

    /// A checkpoint can never be written: blames the steps that it was to complete, and suspends. For a fresh load.
    pub(crate) fn suspend_unwritable(&mut self, steps: &[StepOfCheckpoint], reason: &str, now: Timestamp) {
        for step in steps {
            if self.pointers.contains_key(&step.pointer) {
                self.set_status(step.pointer, PointerStatus::Failed);
                self.record_error(step.pointer, &StepError::permanent(reason.to_owned()), now);
            }
        }
        self.suspend(Some(format!("what the last step left can never be stored: {reason}")));
    }
}
