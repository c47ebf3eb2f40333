//! Sagas: when one fails, what its steps have done is undone, in reverse order, each once, and durable in the middle.
//!
//! What is to be undone is not carried along: it is what the store knows of the saga's finished steps. Each step that is undone is marked in
//! the checkpoint that completes its compensation, so that after a crash the rest is found by the same question.

use super::{
    Instance, Pointer,
    flow::Spot,
    pointer::{PointerState, Undo},
};
use crate::{
    body::ExecutionResult,
    compression::decompress,
    data::{AnyData, Items},
    definition::{COMPENSATION, ErasedBody, NodeIndex, NodeKind},
    error::StepResult,
    policy::GivingUp,
};
use latchwork_core::{
    clock::{self, Timestamp},
    store::{Encoded, Place, PointerId, PointerRecord, PointerStatus, WorkflowStatus},
};
use serde_json::Value;
use std::sync::Arc;

impl Instance {
    /// Opens the steps of a saga.
    pub(super) fn begin_saga(&mut self, id: PointerId) {
        let Some(pointer) = self.pointers.get(&id) else { return };
        let (node, after) = (pointer.node, pointer.after);
        if let NodeKind::Saga(saga) = &self.definition.node(node).kind {
            let body = saga.body;
            self.open_branch(id, body, 0, 0, None, after);
        }
    }

    /// A step has failed for good, and its policy leaves the rest to compensation.
    pub(super) fn undo(&mut self, id: PointerId, reason: String, now: Timestamp) {
        let Some(pointer) = self.pointers.get(&id) else { return };
        let own = self.definition.node(pointer.node).compensation;
        let is_undoing = pointer.state.failure.is_some();
        match (self.saga_around(id), own) {
            (Around::Saga(saga), _) => self.saga_failed(saga, reason, now),
            (Around::Nothing, Some(block)) if !is_undoing => {
                self.cancel_below(id, now);
                self.begin_undoing(id, reason);
                let Some(pointer) = self.pointers.get(&id) else { return };
                let (attempt, items, after) = (pointer.record.place.attempt, pointer.items.clone(), self.next_number);
                let place = Place { branch: COMPENSATION, item: None, round: 0, attempt };
                self.open_block(block, Spot { parent: Some(id), place, items, after });
            }
            (Around::Nothing | Around::Compensation, _) => self.fail_and_suspend(id, reason),
        }
    }

    fn begin_undoing(&mut self, id: PointerId, reason: String) {
        self.set_status(id, PointerStatus::WaitingForChildren);
        self.changes.durable = true;
        if let Some(pointer) = self.pointers.get_mut(&id) {
            pointer.state.failure = Some(reason);
        }
    }

    /// A saga has failed: nothing more begins in it, what runs comes to its end, and then all is undone.
    fn saga_failed(&mut self, saga: PointerId, reason: String, now: Timestamp) {
        let is_new = self.pointers.get(&saga).is_some_and(|pointer| pointer.state.failure.is_none());
        if is_new {
            tracing::warn!(instance = %self.id, reason, "a saga has failed, and is compensated");
            self.begin_undoing(saga, reason);
        }
        self.try_undo(saga, now);
    }

    /// Closes what is idle in a saga that has failed; when nothing is left, asks for what there is to undo.
    pub(super) fn try_undo(&mut self, saga: PointerId, now: Timestamp) {
        if self.undoing.contains(&saga) || self.pointers.get(&saga).is_none_or(|pointer| pointer.undo.is_some()) {
            return;
        }
        let below: Vec<PointerId> = self.pointers.keys().copied().filter(|id| self.is_below(*id, saga)).collect();
        let busy: Vec<PointerId> = below.iter().copied().filter(|id| self.is_busy(*id)).collect();
        for id in &below {
            let is_kept = busy.iter().any(|busy| busy == id || self.is_below(*busy, *id) || self.is_below(*id, *busy));
            if !is_kept {
                self.close(*id, PointerStatus::Cancelled, now);
            }
        }
        self.forget_closed();
        if busy.is_empty() {
            self.want_undo(saga);
        }
    }

    /// Whether a pointer in a saga that has failed is waited for: its body runs, or may have run on a node that went away and runs again
    /// first, or it is a saga that compensates already.
    fn is_busy(&self, id: PointerId) -> bool {
        self.pointers.get(&id).is_some_and(|pointer| {
            pointer.running
                || pointer.may_have_run
                || (pointer.state.failure.is_some() && matches!(self.definition.node(pointer.node).kind, NodeKind::Saga(_)))
        })
    }

    /// The innermost saga that has failed around a pointer, unless the pointer is part of a compensation.
    pub(super) fn failing_saga_around(&self, id: PointerId) -> Option<PointerId> {
        let mut at = self.pointers.get(&id)?;
        while at.record.place.branch != COMPENSATION {
            at = at.record.parent.and_then(|parent| self.pointers.get(&parent))?;
            if at.state.failure.is_some() && matches!(self.definition.node(at.node).kind, NodeKind::Saga(_)) {
                return Some(at.record.id);
            }
        }
        None
    }

    /// A body ended whose saga has failed meanwhile: nothing follows it, and it may have to be undone.
    pub(super) fn ended_in_failed_saga(
        &mut self,
        id: PointerId,
        body: Option<Box<dyn ErasedBody>>,
        result: StepResult,
        now: Timestamp,
    ) -> bool {
        self.changes.durable = true;
        let done = match result {
            Ok(ExecutionResult::Next | ExecutionResult::Outcome(_) | ExecutionResult::Branch(_)) => {
                self.done(id, body).map(|_| true)
            }
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        };
        if let Err(error) = &done {
            self.record_error(id, error, now);
        }
        let status = if matches!(done, Ok(true)) { PointerStatus::Complete } else { PointerStatus::Cancelled };
        self.close(id, status, now);
        done.is_ok()
    }

    /// Asks for what there is to undo in a saga.
    pub(super) fn want_undo(&mut self, saga: PointerId) {
        if let Some(pointer) = self.pointers.get_mut(&saga) {
            pointer.undo = Some(Undo { wanted: vec![saga], ..Undo::default() });
            self.undoing.insert(saga);
        }
    }

    /// For a fresh load. What is still open in a saga that has failed, beside compensations, ran when its node went away: it runs again, and
    /// when it comes to its end all is undone.
    pub(super) fn find_out_what_to_undo(&mut self) {
        let failed = |pointer: &&Pointer| {
            pointer.state.failure.is_some()
                && pointer.record.status != PointerStatus::Failed
                && matches!(self.definition.node(pointer.node).kind, NodeKind::Saga(_))
        };
        let is_busy = |saga: PointerId| {
            let mut records = self.pointers.values().map(|pointer| &pointer.record);
            records.any(|record| record.parent == Some(saga) && record.place.branch != COMPENSATION)
        };
        let sagas = self.pointers.values().filter(failed).map(|pointer| pointer.record.id);
        let idle: Vec<PointerId> = sagas.filter(|saga| !is_busy(*saga)).collect();
        for saga in idle {
            self.want_undo(saga);
        }
    }

    /// A scope whose finished pointers are needed. Asked when everything is committed.
    pub(crate) fn wanted_scope(&self) -> Option<(PointerId, PointerId)> {
        let saga = *self.undoing.first()?;
        let scope = *self.pointers.get(&saga)?.undo.as_ref()?.wanted.last()?;
        Some((saga, scope))
    }

    /// The finished pointers of the scope that was wanted.
    pub(crate) fn scope_loaded(&mut self, saga: PointerId, finished: Vec<PointerRecord>, now: Timestamp) {
        let definition = self.definition.clone();
        let Some(undo) = self.pointers.get_mut(&saga).and_then(|pointer| pointer.undo.as_mut()) else { return };
        undo.wanted.pop();
        for record in finished {
            let Some(node) = definition.by_name.get(&record.step).map(|index| definition.node(*index)) else { continue };
            // What a saga inside has done is undone step by step.
            if matches!(node.kind, NodeKind::Saga(_)) {
                undo.wanted.push(record.id);
                undo.inner.extend(record.scope.map(|around| (record.id, around)));
            }
            // Also one that asked to sleep or to wait, or was cut off, has had its effect.
            let has_begun = record.attempts > 0 || record.started.is_some();
            let has_run = record.status == PointerStatus::Complete || (record.status == PointerStatus::Cancelled && has_begun);
            if node.compensation.is_some() && has_run {
                undo.left.push(record);
            }
        }
        if !undo.wanted.is_empty() {
            return;
        }
        undo.sort();
        self.undoing.remove(&saga);
        let is_at_it = self.pointers.values().any(|pointer| pointer.record.parent == Some(saga));
        if !is_at_it {
            self.undo_next(saga, now);
        }
        self.advance(now);
    }

    /// Opens the next compensation of a saga: of its steps, and of itself at last.
    fn undo_next(&mut self, saga: PointerId, now: Timestamp) {
        let Some(pointer) = self.pointers.get(&saga) else { return };
        let definition = self.definition.clone();
        let next = pointer.undo.as_ref().and_then(|undo| undo.left.last());
        let attempt = u32::try_from(pointer.state.attempt).unwrap_or(u32::MAX);
        let mut place = Place { branch: COMPENSATION, item: None, round: 0, attempt };
        let (block, items) = match next {
            Some(record) => {
                let node = definition.by_name.get(&record.step).copied();
                let Some((node, block)) = node.and_then(|node| Some((node, definition.node(node).compensation?))) else { return };
                place.item = u64::try_from(record.sequence).ok();
                let values = record.state.as_ref().map_or_else(|| Ok(Vec::new()), kept_items);
                match values.and_then(|values| self.items_of(node, &values)) {
                    Ok(items) => (Some(block), items),
                    Err(error) => {
                        let reason = format!("what step `{}` has done cannot be compensated: {error}", record.step);
                        return self.fail_and_suspend(saga, reason);
                    }
                }
            }
            None => (definition.node(pointer.node).compensation, pointer.items.clone()),
        };
        let after = pointer.after.max(self.committed_number);
        match block {
            Some(block) => self.open_block(block, Spot { parent: Some(saga), place, items, after }),
            None => self.saga_undone(saga, now),
        }
    }

    /// A compensation came to its end.
    pub(super) fn compensated(&mut self, id: PointerId, place: Place, after: u64, now: Timestamp) {
        let Some(pointer) = self.pointers.get_mut(&id) else { return };
        if pointer.children > 0 {
            return;
        }
        pointer.after = pointer.after.max(after);
        self.changes.durable = true;
        let node = pointer.node;
        match place.item {
            Some(sequence) => {
                let undo = pointer.undo.get_or_insert_default();
                let undone = undo.left.iter().position(|record| u64::try_from(record.sequence) == Ok(sequence));
                if let Some(position) = undone {
                    let mut record = undo.left.remove(position);
                    record.status = PointerStatus::Compensated;
                    record.state = None;
                    self.changes.closed.push(record);
                }
                self.undo_next(id, now);
            }
            None if matches!(self.definition.node(node).kind, NodeKind::Saga(_)) => self.saga_undone(id, now),
            None => self.close_and_go_on(id, now),
        }
    }

    /// All that a saga has done is undone: it is tried again, or has failed for good.
    fn saga_undone(&mut self, saga: PointerId, now: Timestamp) {
        self.changes.durable = true;
        if let Some(outer) = self.failing_saga_around(saga) {
            self.close(saga, PointerStatus::Compensated, now);
            return self.try_undo(outer, now);
        }
        let Some(pointer) = self.pointers.get(&saga) else { return };
        let reason = pointer.state.failure.clone().unwrap_or_default();
        let name = pointer.record.step.clone();
        let tried = u32::try_from(pointer.state.attempt + 1).unwrap_or(u32::MAX);
        let policy = self.retry_of(pointer);
        let (pause, giving_up) = (policy.pause(tried, saga.as_u128()), policy.giving_up);
        if let Some(pause) = pause {
            self.prepare_next_attempt(saga);
            self.set_status(saga, PointerStatus::Sleeping);
            return self.set_timer(saga, clock::add(now, pause));
        }
        let reason = format!("saga `{name}` failed and was compensated: {reason}");
        if let Some(pointer) = self.pointers.get_mut(&saga) {
            // Nothing is left to be undone.
            pointer.state.failure = None;
            pointer.undo = None;
        }
        match giving_up {
            Some(GivingUp::Suspend) => self.fail_and_suspend(saga, reason),
            Some(GivingUp::Continue) => self.close_and_go_on(saga, now),
            Some(GivingUp::Terminate) => self.end(WorkflowStatus::Terminated, Some(reason)),
            Some(GivingUp::Compensate) | None => match self.saga_around(saga) {
                Around::Saga(outer) => {
                    self.close(saga, PointerStatus::Compensated, now);
                    self.saga_failed(outer, reason, now);
                }
                // A saga in a compensation: what it was to undo is not undone.
                Around::Compensation => self.fail_and_suspend(saga, reason),
                Around::Nothing => self.end(WorkflowStatus::Terminated, Some(reason)),
            },
        }
    }

    fn close_and_go_on(&mut self, id: PointerId, now: Timestamp) {
        let after = self.next_number;
        if let Some(pointer) = self.close(id, PointerStatus::Compensated, now) {
            self.go_on(&pointer, after);
        }
    }

    fn prepare_next_attempt(&mut self, saga: PointerId) {
        if let Some(pointer) = self.pointers.get_mut(&saga) {
            pointer.state.attempt += 1;
            pointer.state.failure = None;
            pointer.undo = None;
            pointer.after = self.next_number;
        }
        self.touch(saga);
    }

    /// Somebody wants another try of a saga that has failed for good.
    pub(super) fn try_saga_again(&mut self, saga: PointerId) {
        if self.pointers.get(&saga).is_some_and(|pointer| pointer.state.failure.is_some()) {
            // It could not be undone to the end.
            self.set_status(saga, PointerStatus::WaitingForChildren);
            return self.want_undo(saga);
        }
        self.prepare_next_attempt(saga);
        self.begin_saga(saga);
    }

    /// What stands around a step that has failed.
    fn saga_around(&self, id: PointerId) -> Around {
        let mut at = self.pointers.get(&id);
        while let Some(pointer) = at {
            if pointer.record.place.branch == COMPENSATION {
                return Around::Compensation;
            }
            at = pointer.record.parent.and_then(|parent| self.pointers.get(&parent));
            if let Some(saga) = at.filter(|above| matches!(self.definition.node(above.node).kind, NodeKind::Saga(_))) {
                return Around::Saga(saga.record.id);
            }
        }
        Around::Nothing
    }

    /// The items around a node as JSON, outermost first; `None` when there are none.
    pub(super) fn values_of(&self, node: NodeIndex, items: &Items) -> Option<Vec<Value>> {
        if items.is_empty() {
            return None;
        }
        let types = self.definition.item_types(node);
        let value = |(item, data_type): (&Arc<AnyData>, &crate::data::DataType)| {
            let encoded = (data_type.encode)(&**item).ok()?;
            serde_json::from_str(encoded.as_str()).ok()
        };
        items.iter().zip(&types).map(value).collect()
    }

    /// The items around a node, of their JSON.
    pub(super) fn items_of(&self, node: NodeIndex, values: &[Value]) -> Result<Items, latchwork_core::BoxError> {
        let types = self.definition.item_types(node);
        if types.len() < values.len() {
            return Err("there are more of them than loops around the step".into());
        }
        values.iter().zip(&types).map(|(value, data_type)| (data_type.decode)(&value.to_string())).collect()
    }

    /// What the store keeps of a pointer that is closed: the items around a step that may be compensated.
    pub(super) fn state_to_keep(&self, pointer: &Pointer) -> Option<Encoded> {
        pointer.record.scope?;
        self.definition.node(pointer.node).compensation?;
        let items = self.values_of(pointer.node, &pointer.items)?;
        Encoded::of(&PointerState { items: Some(items), ..PointerState::default() }).ok()
    }

    /// Whether bodies have to wait until it is known what to undo.
    pub(super) fn is_finding_out(&self) -> bool {
        !self.undoing.is_empty()
    }
}

/// See [`Instance::saga_around`].
enum Around {
    Saga(PointerId),
    /// It is part of a compensation.
    Compensation,
    Nothing,
}

/// The items that [`Instance::state_to_keep`] kept.
fn kept_items(state: &Encoded) -> Result<Vec<Value>, latchwork_core::BoxError> {
    let json = decompress(state)?;
    Ok(serde_json::from_str::<PointerState>(json.as_str())?.items.unwrap_or_default())
}
