//! Branches that run beside what follows them: later, or again and again.

use super::{Instance, Pointer, flow::Spot, guarded};
use crate::{
    definition::{NodeIndex, NodeKind, Ticks},
    error::{StepError, StepResult},
};
use latchwork_core::{
    clock::{self, Timestamp},
    store::{PointerId, PointerStatus},
};
use std::time::Duration;

impl Instance {
    /// Opens what follows a pointer in its block, or says that its branch is over.
    pub(super) fn go_on(&mut self, pointer: &Pointer, after: u64) {
        let (parent, place) = (pointer.record.parent, pointer.record.place);
        // What follows something that runs beside it has begun with it.
        if self.definition.node(pointer.node).kind.is_side() {
            self.branch_is_over(parent, place, after);
        } else {
            self.open_next(pointer.node, Spot { parent, place, items: pointer.items.clone(), after });
        }
    }

    /// Opens what follows something that runs beside it.
    fn go_on_beside(&mut self, id: PointerId) {
        let Some(pointer) = self.pointers.get(&id) else { return };
        let (node, parent, place) = (pointer.node, pointer.record.parent, pointer.record.place);
        self.open_next(node, Spot { parent, place, items: pointer.items.clone(), after: pointer.after });
    }

    fn open_next(&mut self, node: NodeIndex, spot: Spot) {
        let node = self.definition.node(node);
        match self.definition.block(node.block).nodes.get(node.position + 1).copied() {
            Some(next) => self.open(next, spot),
            None => self.branch_is_over(spot.parent, spot.place, spot.after),
        }
    }

    /// Lets a branch run later.
    pub(super) fn schedule(&mut self, id: PointerId, span: Duration, now: Timestamp) {
        self.leaf();
        self.set_status(id, PointerStatus::Sleeping);
        self.set_timer(id, clock::add(now, span));
        self.go_on_beside(id);
    }

    /// Lets a branch run again and again.
    pub(super) fn begin_recurring(&mut self, id: PointerId, now: Timestamp) -> StepResult<()> {
        self.leaf();
        self.go_on_beside(id);
        self.await_tick(id, now)
    }

    /// Runs the branch of something recurring, sleeps until it is to run, or ends it.
    fn await_tick(&mut self, id: PointerId, now: Timestamp) -> StepResult<()> {
        let Some(pointer) = self.pointers.get(&id) else { return Ok(()) };
        let definition = self.definition.clone();
        let NodeKind::Recur(recur) = &definition.node(pointer.node).kind else { return Ok(()) };
        let (data, items, last) = (self.data.clone(), pointer.items.clone(), pointer.state.tick);
        if let Some(until) = &recur.until
            && guarded(|| until(&*data, &items))?
        {
            let after = pointer.after;
            self.finish(id, after, now);
            return Ok(());
        }
        let due = match &recur.ticks {
            Ticks::Every(span) => match last {
                None => Some(now),
                Some(_) => Some(clock::add(now, guarded(|| span(&*data, &items))?)),
            },
            Ticks::Cron(cron) => {
                let due = cron.next_after(last.unwrap_or(now));
                due.and_then(|due| if cron.runs(due, now) { Some(due) } else { cron.next_after(now) })
            }
        };
        match due {
            Some(due) if due <= now => self.run_round(id, now),
            Some(due) => {
                self.set_status(id, PointerStatus::Sleeping);
                self.set_timer(id, due);
            }
            // No year of the calendar has another time.
            None => {
                let after = self.pointers.get(&id).map_or(0, |pointer| pointer.after);
                self.finish(id, after, now);
            }
        }
        Ok(())
    }

    /// The time of a round has come.
    pub(super) fn tick(&mut self, id: PointerId, due: Timestamp, now: Timestamp) {
        let Some(pointer) = self.pointers.get(&id) else { return };
        let definition = self.definition.clone();
        let NodeKind::Recur(recur) = &definition.node(pointer.node).kind else { return };
        let (data, items) = (self.data.clone(), pointer.items.clone());
        let runs = match (&recur.until, &recur.ticks) {
            (Some(until), _) if !matches!(guarded(|| until(&*data, &items)), Ok(false)) => false,
            (_, Ticks::Cron(cron)) => cron.runs(due, now),
            (_, Ticks::Every(_)) => true,
        };
        if runs { self.run_round(id, now) } else { self.round_ended(id, now) }
    }

    fn run_round(&mut self, id: PointerId, now: Timestamp) {
        let Some(pointer) = self.pointers.get_mut(&id) else { return };
        let round = u32::try_from(pointer.state.next).unwrap_or(u32::MAX);
        pointer.state.next += 1;
        pointer.state.tick = Some(clock::whole_micros(now));
        let (node, after) = (pointer.node, pointer.after);
        if let NodeKind::Recur(recur) = &self.definition.node(node).kind {
            let body = recur.body;
            self.open_branch(id, body, 0, round, None, after);
        }
    }

    /// A round is over, or was left out.
    pub(super) fn round_ended(&mut self, id: PointerId, now: Timestamp) {
        if let Err(error) = self.await_tick(id, now) {
            self.give_up(id, &StepError::permanent(error.to_string()), now);
        }
    }
}
