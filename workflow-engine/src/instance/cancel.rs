//! Giving up what has not ended.

use super::{Instance, guarded};
use crate::{
    definition::{AfterCancel, CancelRule},
    error::StepError,
};
use latchwork_core::{
    clock::Timestamp,
    store::{PointerId, PointerStatus},
};

impl Instance {
    /// Asks the conditions of open steps when the data changed. Returns whether any was given up.
    pub(super) fn ask_conditions(&mut self, now: Timestamp) -> bool {
        if !std::mem::take(&mut self.data_changed) || self.conditional.is_empty() || self.status.is_terminal() {
            return false;
        }
        let mut any = false;
        for id in self.conditional.clone() {
            any |= self.ask_condition(id, now);
        }
        any
    }

    /// Gives a step up when its condition says so, or cannot be asked; whether it was.
    pub(super) fn ask_condition(&mut self, id: PointerId, now: Timestamp) -> bool {
        // What is being undone is undone to the end.
        let Some(pointer) = self.pointers.get(&id).filter(|pointer| pointer.state.failure.is_none()) else { return false };
        let definition = self.definition.clone();
        let Some(CancelRule { test, then }) = &definition.node(pointer.node).cancel else { return false };
        let (data, items) = (self.data.clone(), pointer.items.clone());
        match guarded(|| test(&*data, &items)) {
            Ok(false) => false,
            Ok(true) => {
                self.cancel(id, *then, now);
                true
            }
            Err(error) => {
                self.conditional.remove(&id);
                self.give_up(id, &StepError::permanent(format!("its cancel condition failed: {error}")), now);
                true
            }
        }
    }

    /// Gives a step up, with all that is open below it.
    pub(super) fn cancel(&mut self, id: PointerId, then: AfterCancel, now: Timestamp) {
        self.cancel_below(id, now);
        // A decision: it is committed before anything follows from it.
        self.changes.durable = true;
        let after = self.next_number;
        let Some(pointer) = self.close(id, PointerStatus::Cancelled, now) else { return };
        match then {
            AfterCancel::Proceed => self.go_on(&pointer, after),
            AfterCancel::Stop => self.branch_is_over(pointer.record.parent, pointer.record.place, after),
        }
    }

    /// Gives up all that is open below a pointer. Bodies that run are told, and not waited for.
    pub(super) fn cancel_below(&mut self, id: PointerId, now: Timestamp) {
        if self.pointers.get(&id).is_none_or(|pointer| pointer.children == 0) {
            return;
        }
        let below: Vec<PointerId> = self.pointers.keys().copied().filter(|other| self.is_below(*other, id)).collect();
        for id in &below {
            if self.pointers.get(id).is_some_and(|pointer| pointer.running) {
                self.cut.push(*id);
            }
            self.close(*id, PointerStatus::Cancelled, now);
        }
        self.forget_closed();
    }

    /// Takes what is closed out of the bodies that can run.
    pub(super) fn forget_closed(&mut self) {
        let pointers = &self.pointers;
        self.ready.retain(|id| pointers.contains_key(id));
        self.blocked.retain(|id| pointers.contains_key(id));
    }

    /// Whether a pointer stands below another.
    pub(super) fn is_below(&self, id: PointerId, above: PointerId) -> bool {
        let mut at = self.pointers.get(&id).and_then(|pointer| pointer.record.parent);
        while let Some(parent) = at {
            if parent == above {
                return true;
            }
            at = self.pointers.get(&parent).and_then(|pointer| pointer.record.parent);
        }
        false
    }

    /// A branch of several that race has ended: the others are given up.
    pub(super) fn first_ended(&mut self, id: PointerId, now: Timestamp) {
        self.cancel_below(id, now);
        self.changes.durable = true;
        self.finish(id, self.next_number, now);
    }
}
