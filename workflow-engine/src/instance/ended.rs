//! What a body's end does to its instance.

use super::{Instance, changes::StepOfCheckpoint, items::values_as_items};
use crate::{
    body::{ExecutionResult, Outbox},
    definition::{AfterCancel, ErasedBody, NodeKind},
    error::{StepError, StepResult},
    policy::{Durability, GivingUp},
};
use latchwork_core::{
    clock::{self, Timestamp},
    hub::LifeCycleKind,
    limits,
    store::{ActivityOutcome, Encoded, NewInstance, PointerId, PointerStatus, WorkflowStatus},
};
use serde_json::Value;
use std::sync::Arc;

impl Instance {
    /// A body ended; whether what it did stands. `body` is gone when it panicked; `outbox` is what is to be stored when it has succeeded.
    pub(crate) fn body_ended(
        &mut self,
        id: PointerId,
        body: Option<Box<dyn ErasedBody>>,
        result: StepResult,
        outbox: Outbox,
        now: Timestamp,
    ) -> bool {
        // The pointer is gone when its branch ended first.
        let Some(pointer) = self.pointers.get_mut(&id) else { return false };
        if !std::mem::take(&mut pointer.running) {
            return false;
        }
        self.running = self.running.saturating_sub(1);
        if self.status.is_terminal() {
            return false;
        }
        pointer.record.attempts += 1;
        let node = pointer.node;
        self.forget_faults();
        self.changes.ended_steps.push(StepOfCheckpoint { pointer: id });
        let stands = match self.failing_saga_around(id) {
            Some(saga) => {
                let stands = self.ended_in_failed_saga(id, body, result, now);
                self.try_undo(saga, now);
                stands
            }
            None => match result.and_then(|result| self.apply_result(id, body, result, now)) {
                Ok(()) => true,
                Err(error) => {
                    self.failed(id, &error, now);
                    false
                }
            },
        };
        if stands {
            let is_transactional = matches!(&self.definition.node(node).kind, NodeKind::Step(step) if step.transactional);
            self.changes.durable |= is_transactional || !(outbox.events.is_empty() && outbox.instances.is_empty());
            self.changes.events.extend(outbox.events);
            self.changes.children.extend(outbox.instances);
        }
        self.advance(now);
        stands
    }

    fn apply_result(
        &mut self,
        id: PointerId,
        body: Option<Box<dyn ErasedBody>>,
        result: ExecutionResult,
        now: Timestamp,
    ) -> StepResult<()> {
        let definition = self.definition.clone();
        let Some(pointer) = self.pointers.get(&id) else { return Ok(()) };
        let NodeKind::Step(step) = &definition.node(pointer.node).kind else { return Ok(()) };
        match result {
            ExecutionResult::Next => {
                let after = self.done(id, body)?;
                self.finish(id, after, now);
            }
            ExecutionResult::Outcome(value) => {
                let after = self.done(id, body)?;
                let branch = (0..).zip(&step.outcomes).find(|(_, (outcome, _))| outcome.fits(&value));
                match branch {
                    Some((branch, (_, block))) => self.open_branch(id, *block, branch, 0, None, after),
                    None => self.finish(id, after, now),
                }
            }
            ExecutionResult::Branch(values) => {
                if step.each.is_none() {
                    return Err(StepError::permanent(
                        "it answered with a branch for each value, but its definition has no `branches`",
                    ));
                }
                let (items, encoded) = values_as_items(values)?;
                let after = self.done(id, body)?;
                self.begin_items(id, items, encoded, after, now);
            }
            ExecutionResult::Persist(state) => {
                self.keep(id, Some(state))?;
                self.again_after_checkpoint(id);
                self.make_ready(id);
            }
            ExecutionResult::Sleep { span, state } => {
                self.keep(id, state)?;
                self.changes.durable = true;
                self.set_status(id, PointerStatus::Sleeping);
                self.set_timer(id, clock::add(now, span));
            }
            ExecutionResult::WaitForEvent { name, key, as_of, state } => {
                latchwork_core::name::check("event name", &name).map_err(StepError::permanent)?;
                latchwork_core::name::check("event key", &key).map_err(StepError::permanent)?;
                self.keep(id, state)?;
                self.subscribe(id, name.into(), key, as_of);
            }
            ExecutionResult::WaitForActivity { name, parameters, state } => {
                latchwork_core::name::check("activity name", &name).map_err(StepError::permanent)?;
                let parameters = Encoded::of(&parameters)?;
                let failed = pointer.record.attempts.saturating_sub(1);
                self.keep_and_count(id, state, failed)?;
                self.ask_worker(id, name, parameters);
            }
            ExecutionResult::StartChild(child) => {
                let child = child.0;
                let (bytes, limit) = (child.data.as_str().len(), self.rules.data_limit);
                if bytes > limit || !limits::json_depth_is_allowed(child.data.as_str()) {
                    let error = format!(
                        "the data for the workflow have {bytes} bytes of JSON; the limits are {limit} bytes (option `data_limit`) and {} levels",
                        limits::JSON_DEPTH
                    );
                    return Err(StepError::permanent(error));
                }
                let failed = pointer.record.attempts.saturating_sub(1);
                self.keep_and_count(id, None, failed)?;
                let new = NewInstance::new(child.definition, child.version, child.fingerprint, child.data);
                self.start_child(id, new);
            }
        }
        Ok(())
    }

    /// Applies the outputs of a body that is done. Returns the checkpoint after which what follows can start.
    pub(super) fn done(&mut self, id: PointerId, body: Option<Box<dyn ErasedBody>>) -> StepResult<u64> {
        let definition = self.definition.clone();
        let Some(pointer) = self.pointers.get(&id) else { return Ok(self.next_number) };
        let (node, after, items) = (pointer.node, pointer.after, pointer.items.clone());
        let NodeKind::Step(step) = &definition.node(node).kind else { return Ok(self.next_number) };
        if let Some(mut body) = body.filter(|_| !step.outputs.is_empty()) {
            self.change_data(|data| step.outputs.iter().try_for_each(|output| output(&mut *body, data, &items)))?;
        }
        self.happened.push(LifeCycleKind::StepCompleted { step: definition.node(node).name.clone() });
        metrics::counter!("latchwork.step.completed").increment(1);
        match step.durability.unwrap_or(definition.durability) {
            Durability::Checkpoint => {
                self.changes.durable = true;
                Ok(self.next_number)
            }
            Durability::Replayable => Ok(after),
        }
    }

    /// Keeps what a body that is not done asked to keep. It has not failed, so its tries start anew.
    fn keep(&mut self, id: PointerId, state: Option<Value>) -> StepResult<()> {
        self.keep_and_count(id, state, 0)
    }

    /// As [`keep`](Self::keep), with this count of failed tries: who asks somebody else has failed as often as the answers did.
    fn keep_and_count(&mut self, id: PointerId, state: Option<Value>, attempts: u32) -> StepResult<()> {
        if let Some(state) = &state {
            let bytes = serde_json::to_string(state)?.len();
            if bytes > limits::STEP_STATE_BYTES {
                let error = format!("the state to keep has {bytes} bytes of JSON, the limit is {}", limits::STEP_STATE_BYTES);
                return Err(StepError::permanent(error));
            }
        }
        if let Some(pointer) = self.pointers.get_mut(&id) {
            if let Some(state) = state {
                pointer.state.kept = Some(Arc::new(state));
            }
            pointer.state.event = None;
            pointer.state.activity = None;
            pointer.state.child_end = None;
            pointer.record.attempts = attempts;
            self.touch(id);
        }
        Ok(())
    }

    pub(super) fn again_after_checkpoint(&mut self, id: PointerId) {
        self.changes.durable = true;
        if let Some(pointer) = self.pointers.get_mut(&id) {
            pointer.after = self.next_number;
        }
    }

    /// A body failed: tries it again later, or gives up.
    fn failed(&mut self, id: PointerId, error: &StepError, now: Timestamp) {
        let Some(pointer) = self.pointers.get(&id) else { return };
        let pause = match error.is_permanent() {
            true => None,
            false => self.retry_of(pointer).pause(pointer.record.attempts, id.as_u128()),
        };
        match pause {
            None => self.give_up(id, error, now),
            Some(pause) => {
                self.record_error(id, error, now);
                self.forget_failed_answer(id);
                self.changes.durable = true;
                self.set_status(id, PointerStatus::Sleeping);
                self.set_timer(id, clock::add(now, pause.max(error.retry_after_hint().unwrap_or_default())));
            }
        }
    }

    /// What a worker or another workflow answered was a failure: the next try asks again.
    fn forget_failed_answer(&mut self, id: PointerId) {
        let Some(pointer) = self.pointers.get_mut(&id) else { return };
        if matches!(pointer.state.activity.as_deref(), Some(ActivityOutcome::Failure(_))) {
            pointer.state.activity = None;
        }
        if pointer.state.child_end.as_ref().is_some_and(|end| end.status != WorkflowStatus::Complete) {
            pointer.state.child_end = None;
        }
    }

    /// A step has failed for good.
    pub(super) fn give_up(&mut self, id: PointerId, error: &StepError, now: Timestamp) {
        let message = self.record_error(id, error, now);
        let Some(pointer) = self.pointers.get(&id) else { return };
        let (step, attempts) = (pointer.record.step.clone(), pointer.record.attempts.max(1));
        let tries = if attempts == 1 { "1 try".to_owned() } else { format!("{attempts} tries") };
        let reason = format!("step `{step}` failed for good after {tries}: {message}");
        let giving_up = self.retry_of(pointer).giving_up;
        self.forget_failed_answer(id);
        self.end_wait(id);
        // Also when the instance is suspended already: what failed for good is not run again after a crash.
        self.changes.durable = true;
        match giving_up {
            Some(GivingUp::Suspend) => self.fail_and_suspend(id, reason),
            Some(GivingUp::Terminate) => {
                self.set_status(id, PointerStatus::Failed);
                self.end(WorkflowStatus::Terminated, Some(reason));
            }
            Some(GivingUp::Continue) => self.cancel(id, AfterCancel::Proceed, now),
            Some(GivingUp::Compensate) | None => self.undo(id, reason, now),
        }
    }

    pub(super) fn fail_and_suspend(&mut self, id: PointerId, reason: String) {
        self.set_status(id, PointerStatus::Failed);
        self.changes.durable = true;
        self.suspend(Some(reason));
    }
}
