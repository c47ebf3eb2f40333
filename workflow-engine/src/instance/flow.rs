//! Control flow: pure, without a checkpoint or a queue hop of its own.

use super::{Instance, Pointer, guarded};
use crate::{
    data::Items,
    definition::{BlockIndex, COMPENSATION, NodeIndex, NodeKind, Target},
    error::{StepError, StepResult},
};
use latchwork_core::{
    clock::{self, Timestamp},
    hub::LifeCycleKind,
    store::{Place, PointerId, PointerRecord, PointerStatus, WorkflowStatus},
};
use std::sync::Arc;

/// A move of control flow still to be made. A queue of them instead of recursion: loops and collections may be long.
#[derive(Debug)]
pub(super) enum Task {
    /// Do what the node of a pointer that was just opened says.
    Enter(PointerId),
    /// A pointer's branch came to its end.
    BranchEnded { owner: PointerId, place: Place, after: u64 },
    /// A pointer of the workflow's own block came to its end, and nothing follows it.
    RootEnded,
}

/// Where a node is to be opened.
#[derive(Clone)]
pub(super) struct Spot {
    pub(super) parent: Option<PointerId>,
    pub(super) place: Place,
    pub(super) items: Items,
    pub(super) after: u64,
}

impl Instance {
    /// Opens the first step of an instance that never ran.
    pub(super) fn start(&mut self, now: Timestamp) {
        self.happened.push(LifeCycleKind::Started);
        let spot = Spot { parent: None, place: Place::default(), items: Arc::new([]), after: 0 };
        self.open_block(BlockIndex::ROOT, spot);
        self.advance(now);
    }

    /// Wakes what is due. Returns whether anything was.
    pub(crate) fn fire_timers(&mut self, now: Timestamp) -> bool {
        let mut fired = false;
        while self.status == WorkflowStatus::Runnable
            && let Some((due, id)) = self.timers.first().copied()
            && due <= now
        {
            self.timers.pop_first();
            fired = true;
            self.fire(id, due, now);
        }
        self.advance(now);
        fired
    }

    fn fire(&mut self, id: PointerId, due: Timestamp, now: Timestamp) {
        let Some(pointer) = self.pointers.get_mut(&id) else { return };
        pointer.record.due = None;
        let definition = self.definition.clone();
        match &definition.node(pointer.node).kind {
            // A delay that is over is a fact of the store's clock: what follows need not wait for a checkpoint of it.
            NodeKind::Delay { .. } => {
                let after = pointer.after;
                self.finish(id, after, now);
            }
            // That the time was over before the event came is a decision: it is committed before anything follows from it.
            NodeKind::Wait(wait) => {
                self.end_wait(id);
                self.changes.durable = true;
                let after = self.next_number;
                match wait.late {
                    Some(late) => self.open_branch(id, late, 0, 0, None, after),
                    None => self.finish(id, after, now),
                }
            }
            NodeKind::Schedule { body, .. } => self.open_branch(id, *body, 0, 0, None, self.next_number),
            NodeKind::Recur(_) => self.tick(id, due, now),
            NodeKind::Saga(_) => self.begin_saga(id),
            _ => self.make_ready(id),
        }
    }

    /// Lets a pointer's body run, once the checkpoint that it comes after is committed.
    pub(super) fn make_ready(&mut self, id: PointerId) {
        self.set_status(id, PointerStatus::Ready);
        let Some(pointer) = self.pointers.get(&id) else { return };
        if pointer.after <= self.committed_number {
            self.ready.push_back(id);
        } else {
            self.blocked.push(id);
        }
    }

    pub(super) fn set_status(&mut self, id: PointerId, status: PointerStatus) {
        if let Some(pointer) = self.pointers.get_mut(&id) {
            pointer.record.status = status;
            self.touch(id);
        }
    }

    /// Makes all moves that need nobody else.
    pub(super) fn advance(&mut self, now: Timestamp) {
        loop {
            while let Some(task) = self.tasks.pop_front() {
                if self.status.is_terminal() {
                    self.tasks.clear();
                    return;
                }
                match task {
                    Task::Enter(id) => self.enter(id, now),
                    Task::BranchEnded { owner, place, after } => self.branch_ended(owner, place, after, now),
                    // What runs beside it is waited for.
                    Task::RootEnded if self.pointers.is_empty() => self.end(WorkflowStatus::Complete, None),
                    Task::RootEnded => {}
                }
            }
            if !self.ask_conditions(now) {
                return;
            }
        }
    }

    pub(super) fn open(&mut self, node: NodeIndex, spot: Spot) {
        let definition = self.definition.clone();
        let name = &definition.node(node).name;
        let id = pointer_id(spot.parent, name, spot.place);
        self.last_sequence += 1;
        let mut record = PointerRecord::new(id, self.last_sequence, name.clone());
        record.parent = spot.parent;
        record.place = spot.place;
        if let Some(parent) = spot.parent.and_then(|parent| self.pointers.get_mut(&parent)) {
            parent.children += 1;
            record.scope = match definition.node(parent.node).kind {
                // What undoes is not undone.
                _ if spot.place.branch == COMPENSATION => None,
                NodeKind::Saga(_) => Some(parent.record.id),
                _ => parent.record.scope,
            };
        }
        let mut pointer = Pointer::new(record, node, spot.items);
        pointer.after = spot.after;
        if spot.place.branch == COMPENSATION && spot.place.item.is_some() {
            pointer.state.items = self.values_of(node, &pointer.items);
        }
        if definition.node(node).cancel.is_some() {
            self.conditional.insert(id);
        }
        self.pointers.insert(id, pointer);
        self.touch(id);
        self.tasks.push_back(Task::Enter(id));
    }

    pub(super) fn open_block(&mut self, block: BlockIndex, spot: Spot) {
        match self.definition.block(block).nodes.first() {
            Some(first) => self.open(*first, spot),
            None => match spot.parent {
                Some(owner) => self.tasks.push_back(Task::BranchEnded { owner, place: spot.place, after: spot.after }),
                None => self.tasks.push_back(Task::RootEnded),
            },
        }
    }

    /// Opens a branch of a container.
    pub(super) fn open_branch(
        &mut self,
        owner: PointerId,
        block: BlockIndex,
        branch: u32,
        round: u32,
        item: Option<u64>,
        after: u64,
    ) {
        self.set_status(owner, PointerStatus::WaitingForChildren);
        let Some(pointer) = self.pointers.get_mut(&owner) else { return };
        pointer.progress_at = self.leaves;
        let items = match item {
            None => pointer.items.clone(),
            Some(index) => {
                let item = usize::try_from(index).ok().zip(pointer.collection.as_ref());
                let item = item.and_then(|(index, collection)| collection.items.get(index));
                pointer.items.iter().chain(item).cloned().collect()
            }
        };
        let attempt = match self.definition.node(pointer.node).kind {
            NodeKind::Saga(_) => u32::try_from(pointer.state.attempt).unwrap_or(u32::MAX),
            _ => pointer.record.place.attempt,
        };
        let place = Place { branch, item, round, attempt };
        self.open_block(block, Spot { parent: Some(owner), place, items, after });
    }

    fn enter(&mut self, id: PointerId, now: Timestamp) {
        let Some(pointer) = self.pointers.get(&id) else { return };
        let definition = self.definition.clone();
        let (after, data, items) = (pointer.after, self.data.clone(), pointer.items.clone());
        let round = u32::try_from(pointer.state.next).unwrap_or(u32::MAX);
        let node = definition.node(pointer.node);
        if node.cancel.is_some() && self.ask_condition(id, now) {
            return;
        }
        let entered = match &node.kind {
            NodeKind::Step(_) => {
                self.leaf();
                self.make_ready(id);
                Ok(())
            }
            NodeKind::Choose { select, branches } => guarded(|| select(&*data, &items)).map(|chosen| {
                let block = chosen.and_then(|index| Some((u32::try_from(index).ok()?, *branches.get(index)?)));
                match block {
                    Some((branch, block)) => self.open_branch(id, block, branch, 0, None, after),
                    None => self.finish(id, after, now),
                }
            }),
            // Not always the first: a loop whose condition failed goes on where it was.
            NodeKind::While { .. } => self.next_round(id, round, after, now),
            NodeKind::ForEach { items: items_of, item, .. } => guarded(|| items_of(&*data, &items))
                .and_then(|items| Ok(((item.encode_all)(&items)?, items)))
                .map(|(encoded, items)| self.begin_items(id, items, encoded, after, now)),
            NodeKind::Group { body } => {
                self.open_branch(id, *body, 0, 0, None, after);
                Ok(())
            }
            NodeKind::Saga(_) => {
                self.begin_saga(id);
                Ok(())
            }
            NodeKind::Schedule { span, .. } => guarded(|| span(&*data, &items)).map(|span| self.schedule(id, span, now)),
            NodeKind::Recur(_) => self.begin_recurring(id, now),
            NodeKind::Parallel { branches } | NodeKind::First { branches } => {
                self.set_status(id, PointerStatus::WaitingForChildren);
                for (branch, block) in (0..).zip(branches) {
                    self.open_branch(id, *block, branch, 0, None, after);
                }
                Ok(())
            }
            NodeKind::Delay { span } => guarded(|| span(&*data, &items)).map(|span| {
                self.leaf();
                self.set_status(id, PointerStatus::Sleeping);
                self.set_timer(id, clock::add(now, span));
            }),
            NodeKind::Wait(wait) => guarded(|| {
                let as_of = wait.as_of.as_ref().map(|as_of| as_of(&*data, &items)).transpose()?;
                let timeout = wait.timeout.as_ref().map(|timeout| timeout(&*data, &items)).transpose()?;
                let key = (wait.key)(&*data, &items)?;
                latchwork_core::name::check("event key", &key).map_err(StepError::permanent)?;
                Ok((key, as_of, timeout))
            })
            .map(|(key, as_of, timeout)| {
                self.leaf();
                self.subscribe(id, wait.event.clone(), key, as_of);
                if let Some(timeout) = timeout {
                    self.set_timer(id, clock::add(now, timeout));
                }
            }),
            NodeKind::GoTo { target } => self.jump(id, target, now),
            NodeKind::End => {
                self.close(id, PointerStatus::Complete, now);
                self.end(WorkflowStatus::Complete, None);
                Ok(())
            }
        };
        if let Err(error) = entered {
            // Conditions and collections are pure functions of the data: another try would end the same way.
            self.give_up(id, &StepError::permanent(error.to_string()), now);
        }
    }

    pub(super) fn leaf(&mut self) {
        self.leaves += 1;
        self.idle_jumps = 0;
    }

    fn next_round(&mut self, id: PointerId, round: u32, after: u64, now: Timestamp) -> StepResult<()> {
        let Some(pointer) = self.pointers.get_mut(&id) else { return Ok(()) };
        pointer.state.next = u64::from(round);
        let definition = self.definition.clone();
        let NodeKind::While { test, body } = &definition.node(pointer.node).kind else { return Ok(()) };
        let items = pointer.items.clone();
        if pointer.progress_at == self.leaves {
            return Err(
                "a round of this loop ran no step, waited for nothing and changed nothing, so it would go round for ever".into(),
            );
        }
        let data = self.data.clone();
        if guarded(|| test(&*data, &items))? {
            self.open_branch(id, *body, 0, round, None, after);
        } else {
            self.finish(id, after, now);
        }
        Ok(())
    }

    fn branch_ended(&mut self, owner: PointerId, place: Place, after: u64, now: Timestamp) {
        let Some(pointer) = self.pointers.get_mut(&owner) else { return };
        pointer.after = pointer.after.max(after);
        let after = pointer.after;
        let has_more_items = pointer.collection.as_ref().is_some_and(|items| pointer.state.next < items.items.len() as u64);
        let definition = self.definition.clone();
        match &definition.node(pointer.node).kind {
            _ if place.branch == COMPENSATION => self.compensated(owner, place, after, now),
            NodeKind::First { .. } => self.first_ended(owner, now),
            // It has failed meanwhile.
            NodeKind::Saga(_) if pointer.state.failure.is_some() => {}
            // What runs beside the branch is waited for.
            NodeKind::While { .. } | NodeKind::Recur(_) | NodeKind::Saga(_) if pointer.children > 0 => {}
            NodeKind::Recur(_) => self.round_ended(owner, now),
            NodeKind::While { .. } => {
                if let Err(error) = self.next_round(owner, place.round + 1, after, now) {
                    self.give_up(owner, &StepError::permanent(error.to_string()), now);
                }
            }
            _ if has_more_items => self.open_items(owner, after),
            _ if pointer.children == 0 => self.finish(owner, after, now),
            _ => {}
        }
    }

    /// A pointer is done: goes on with what follows it.
    pub(super) fn finish(&mut self, id: PointerId, after: u64, now: Timestamp) {
        let Some(pointer) = self.close(id, PointerStatus::Complete, now) else { return };
        self.go_on(&pointer, after);
    }

    /// Nothing follows in this branch.
    pub(super) fn branch_is_over(&mut self, parent: Option<PointerId>, place: Place, after: u64) {
        self.tasks.push_back(match parent {
            Some(owner) => Task::BranchEnded { owner, place, after },
            None => Task::RootEnded,
        });
    }

    /// Takes a pointer, and the record of its collection, out of the open part.
    pub(super) fn close(&mut self, id: PointerId, status: PointerStatus, now: Timestamp) -> Option<Pointer> {
        self.end_wait(id);
        let mut pointer = self.pointers.remove(&id)?;
        if let Some(parent) = pointer.record.parent.and_then(|parent| self.pointers.get_mut(&parent)) {
            parent.children = parent.children.saturating_sub(1);
        }
        if pointer.running {
            self.running = self.running.saturating_sub(1);
        }
        let is_open_saga = pointer.record.status == PointerStatus::WaitingForChildren
            && matches!(self.definition.node(pointer.node).kind, NodeKind::Saga(_));
        if status == PointerStatus::Cancelled && is_open_saga {
            // It has begun, so it is undone itself when what its steps have done is.
            pointer.record.attempts += 1;
        }
        pointer.record.status = status;
        pointer.record.ended = Some(clock::whole_micros(now));
        pointer.record.due = None;
        pointer.record.state = self.state_to_keep(&pointer);
        self.conditional.remove(&id);
        self.undoing.remove(&id);
        self.changes.closed.push(pointer.record.clone());
        if let Some(mut collection) = pointer.collection.take() {
            collection.record.status = status;
            collection.record.state = None;
            self.changes.closed.push(collection.record);
        }
        Some(pointer)
    }

    fn jump(&mut self, id: PointerId, target: &Target, now: Timestamp) -> StepResult<()> {
        let Target::Node(target) = *target else {
            return Err("its target was not resolved; please report this as a bug".into());
        };
        self.idle_jumps += 1;
        if self.idle_jumps > self.definition.nodes.len() {
            return Err("its jumps run no step, wait for nothing and change nothing, so they would go on for ever".into());
        }
        let definition = self.definition.clone();
        let block = definition.node(target).block;
        // The containers between here and the target's block have one branch open, this one; they end with the jump.
        let mut at = self.close(id, PointerStatus::Complete, now);
        while let Some(pointer) = at {
            let after = pointer.after;
            if definition.node(pointer.node).block == block {
                let place = Place { round: pointer.record.place.round + 1, ..pointer.record.place };
                self.open(target, Spot { parent: pointer.record.parent, place, items: pointer.items, after });
                return Ok(());
            }
            at = pointer.record.parent.and_then(|parent| {
                self.cancel_below(parent, now);
                self.close(parent, PointerStatus::Complete, now)
            });
        }
        Err("its target is not around it; please report this as a bug".into())
    }

    /// Ends the instance.
    pub(super) fn end(&mut self, status: WorkflowStatus, reason: Option<String>) {
        self.happened.push(match status {
            WorkflowStatus::Terminated => LifeCycleKind::Terminated { reason: reason.clone() },
            _ => LifeCycleKind::Completed,
        });
        self.status = status;
        self.reason = reason;
        self.changes.header = true;
        self.changes.durable = true;
        self.tasks.clear();
        self.ready.clear();
        self.blocked.clear();
    }

    /// Closes what is still open of an instance that has ended. After its bodies are gone.
    pub(crate) fn close_all(&mut self, now: Timestamp) {
        let open: Vec<PointerId> = self.pointers.keys().copied().collect();
        for id in open {
            self.close(id, PointerStatus::Cancelled, now);
        }
    }

    pub(super) fn suspend(&mut self, reason: Option<String>) {
        if self.status != WorkflowStatus::Runnable {
            return;
        }
        self.happened.push(LifeCycleKind::Suspended { reason: reason.clone() });
        self.status = WorkflowStatus::Suspended;
        self.reason = reason;
        self.changes.header = true;
        self.changes.durable = true;
    }
}

/// The derived id of a pointer; see `contracts` in the architecture page.
pub(super) fn pointer_id(parent: Option<PointerId>, step: &str, place: Place) -> PointerId {
    let mut numbers = [0_u8; 21];
    let parts = [
        &place.branch.to_be_bytes()[..],
        &place.round.to_be_bytes(),
        &place.attempt.to_be_bytes(),
        &[u8::from(place.item.is_some())],
        &place.item.unwrap_or(0).to_be_bytes(),
    ];
    for (to, from) in numbers.iter_mut().zip(parts.concat()) {
        *to = from;
    }
    let parent = parent.map_or(0, PointerId::as_u128).to_be_bytes();
    PointerId::derive(&[&parent, step.as_bytes(), &numbers])
}
