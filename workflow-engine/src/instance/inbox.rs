//! What others ask of an instance.

use super::Instance;
use crate::{definition::NodeKind, error::StepError};
use latchwork_core::{
    clock::Timestamp,
    hub::LifeCycleKind,
    store::{ConsumedEvent, Control, Encoded, InboxMessage, InboxRow, PointerId, PointerStatus, WorkflowStatus},
};
use serde_json::Value;
use std::sync::Arc;

impl Instance {
    /// Applies what stands in the inbox and was not applied in this burst. Returns whether there was anything.
    pub(crate) fn apply_inbox(&mut self, rows: Vec<InboxRow>, now: Timestamp) -> bool {
        let mut any = false;
        for row in rows {
            if self.status.is_terminal() {
                // The terminal checkpoint empties the inbox.
                return any;
            }
            let waits_for_resume = matches!(row.message, InboxMessage::Event { .. }) && self.status != WorkflowStatus::Runnable;
            if waits_for_resume || !self.seen.insert(row.id) {
                continue;
            }
            any = true;
            self.changes.applied.push(row.id);
            self.changes.durable = true;
            match row.message {
                InboxMessage::Event { subscription, slot, event, data, .. } => {
                    if let Some(id) = self.waits.get(&subscription).copied() {
                        self.changes.consumed.push(ConsumedEvent { slot, event });
                        self.event_arrived(id, data.as_ref(), now);
                    }
                }
                InboxMessage::Control(control) => self.apply_control(control, now),
            }
            self.advance(now);
        }
        any
    }

    fn event_arrived(&mut self, id: PointerId, data: Option<&Encoded>, now: Timestamp) {
        self.end_wait(id);
        let after = self.next_number;
        let Some(pointer) = self.pointers.get_mut(&id) else { return };
        pointer.after = after;
        let value = match data.map(|data| serde_json::from_str::<Value>(data.as_str())).transpose() {
            Ok(value) => value.unwrap_or(Value::Null),
            Err(error) => return self.give_up(id, &StepError::permanent(error), now),
        };
        let definition = self.definition.clone();
        match &definition.node(pointer.node).kind {
            NodeKind::Wait(wait) => {
                let node = pointer.node;
                if let Some(output) = &wait.output {
                    let items = pointer.items.clone();
                    let applied = self.change_data(|data| output(&value, data, &items));
                    if let Err(error) = applied {
                        let error = format!("the event's data could not be taken over: {error}");
                        return self.give_up(id, &StepError::permanent(error), now);
                    }
                }
                self.happened.push(LifeCycleKind::StepCompleted { step: definition.node(node).name.clone() });
                self.finish(id, after, now);
            }
            _ => {
                pointer.state.event = Some(Arc::new(value));
                self.make_ready(id);
            }
        }
    }

    fn apply_control(&mut self, control: Control, now: Timestamp) {
        match control {
            Control::Suspend { reason } => self.suspend(reason),
            Control::Resume => self.resume(None, now),
            Control::Terminate { reason } => self.end(WorkflowStatus::Terminated, reason),
            Control::RetryStep { pointer } => self.resume(pointer, now),
            Control::ActivityResult { activity, outcome } => {
                if let Some(id) = self.waits.get(&activity).copied() {
                    self.end_wait(id);
                    if let Some(pointer) = self.pointers.get_mut(&id) {
                        pointer.state.activity = Some(Arc::new(outcome));
                    }
                    self.again_after_checkpoint(id);
                    self.make_ready(id);
                }
            }
            Control::ChildEnded { child, pointer, status, result } => self.child_ended(&child, pointer, status, result),
        }
    }

    /// Goes on, and tries failed steps again: this one, or all.
    fn resume(&mut self, only: Option<PointerId>, now: Timestamp) {
        self.forget_faults();
        let failed: Vec<PointerId> = self
            .pointers
            .values()
            .filter(|pointer| pointer.record.status == PointerStatus::Failed && only.is_none_or(|only| only == pointer.record.id))
            .map(|pointer| pointer.record.id)
            .collect();
        if self.status == WorkflowStatus::Suspended {
            self.happened.push(LifeCycleKind::Resumed);
            self.status = WorkflowStatus::Runnable;
            self.reason = None;
            self.changes.header = true;
            self.changes.durable = true;
        }
        for id in failed {
            if let Some(pointer) = self.pointers.get_mut(&id) {
                pointer.record.attempts = 0;
                match self.definition.node(pointer.node).kind {
                    NodeKind::Step(_) => self.make_ready(id),
                    NodeKind::Saga(_) => self.try_saga_again(id),
                    // What follows it has begun: only its rounds go on.
                    NodeKind::Recur(_) => {
                        self.set_status(id, PointerStatus::Ready);
                        self.round_ended(id, now);
                    }
                    // Control flow and waits begin anew.
                    _ => {
                        pointer.progress_at = u64::MAX;
                        self.set_status(id, PointerStatus::Ready);
                        self.tasks.push_back(super::Task::Enter(id));
                    }
                }
            }
        }
    }
}
