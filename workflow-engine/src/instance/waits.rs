//! What pointers wait for: times, events, external workers.

use super::{Instance, pointer::Wait};
use latchwork_core::{
    clock::{self, Timestamp},
    store::{Activity, Encoded, PointerId, PointerStatus, Subscription, SubscriptionId},
};
use std::{fmt::Write, sync::Arc};

impl Instance {
    pub(super) fn set_timer(&mut self, id: PointerId, due: Timestamp) {
        if let Some(pointer) = self.pointers.get_mut(&id) {
            pointer.record.due = Some(due);
            self.timers.insert((due, id));
            self.touch(id);
        }
    }

    pub(super) fn clear_timer(&mut self, id: PointerId) {
        if let Some(due) = self.pointers.get_mut(&id).and_then(|pointer| pointer.record.due.take()) {
            self.timers.remove(&(due, id));
        }
    }

    /// Ends what a pointer waits for, with its timer.
    pub(super) fn end_wait(&mut self, id: PointerId) {
        self.clear_timer(id);
        match self.pointers.get_mut(&id).and_then(|pointer| pointer.wait.take()) {
            Some(Wait::Event(wait)) => {
                self.waits.remove(&wait);
                self.changes.ended_subscriptions.push(wait);
            }
            Some(Wait::Activity(wait)) => {
                self.waits.remove(&wait);
                self.changes.ended_activities.push(wait);
            }
            Some(Wait::Child) => self.forsake_child(id),
            None => {}
        }
    }

    /// Lets a pointer wait for an event.
    pub(super) fn subscribe(&mut self, id: PointerId, event: Arc<str>, key: String, as_of: Option<Timestamp>) {
        let slot = self.slot(id);
        let Some(wait) = self.next_wait(id) else { return };
        let as_of = as_of.map_or(self.created, clock::whole_micros);
        self.last_sequence += 1;
        self.changes.subscriptions.push(Subscription::new(wait, id, event, key, slot, as_of, self.last_sequence));
        self.changes.durable = true;
        if let Some(pointer) = self.pointers.get_mut(&id) {
            pointer.wait = Some(Wait::Event(wait));
        }
        self.set_status(id, PointerStatus::WaitingForEvent);
    }

    /// Lets a pointer wait for an external worker.
    pub(super) fn ask_worker(&mut self, id: PointerId, name: String, parameters: Encoded) {
        let Some(wait) = self.next_wait(id) else { return };
        self.changes.activities.push(Activity::new(wait, id, name, Some(parameters)));
        self.changes.durable = true;
        if let Some(pointer) = self.pointers.get_mut(&id) {
            pointer.wait = Some(Wait::Activity(wait));
        }
        self.set_status(id, PointerStatus::WaitingForActivity);
    }

    pub(super) fn next_wait(&mut self, id: PointerId) -> Option<SubscriptionId> {
        let pointer = self.pointers.get_mut(&id)?;
        pointer.state.waits += 1;
        let wait = SubscriptionId::derive(&[&id.as_u128().to_be_bytes(), &pointer.state.waits.to_be_bytes()]);
        self.waits.insert(wait, id);
        Some(wait)
    }

    /// The wait slot of a pointer: its step and the for-each indices around it.
    pub(super) fn slot(&self, id: PointerId) -> String {
        let mut indices = Vec::new();
        let mut at = self.pointers.get(&id);
        let mut slot = at.map_or_else(String::new, |pointer| pointer.record.step.to_string());
        while let Some(pointer) = at {
            indices.extend(pointer.record.place.item);
            at = pointer.record.parent.and_then(|parent| self.pointers.get(&parent));
        }
        for index in indices.iter().rev() {
            let _ = write!(slot, "[{index}]");
        }
        slot
    }
}
