//! What the builders of steps have in common.

use super::{WorkflowBuilder, nest};
use crate::{
    body::{StepBody, StepContext, StepFn},
    data::{Scope, view},
    definition::{AfterCancel, CancelRule, NodeIndex, NodeKind, Output, ProblemKind, SharedDraft, StepNode},
    error::StepResult,
};
use latchwork_core::limits;
use std::{
    any::{TypeId, type_name},
    panic::Location,
};

/// A node that is being described.
pub(super) struct Handle {
    pub(super) draft: SharedDraft,
    pub(super) node: NodeIndex,
}

impl Handle {
    pub(super) fn change(&self, change: impl FnOnce(&mut StepNode)) {
        if let Some(NodeKind::Step(step)) = self.draft.borrow_mut().kind_mut(self.node) {
            change(step);
        }
    }

    pub(super) fn add_output(&self, output: Output) {
        self.change(|step| step.outputs.push(output));
    }

    pub(super) fn needs<T: 'static>(&self) {
        self.draft.borrow_mut().needs.push((self.node, TypeId::of::<T>(), type_name::<T>()));
    }

    pub(super) fn cancel_when<S: Scope>(&self, test: impl Fn(S::View<'_>) -> bool + Send + Sync + 'static, then: AfterCancel) {
        let rule = CancelRule { test: Box::new(move |data, items| Ok(test(view::<S>(data, items)?))), then };
        if let Some(node) = self.draft.borrow_mut().node_mut(self.node) {
            node.cancel = Some(rule);
        }
    }

    /// Sets the block that undoes the node.
    #[track_caller]
    pub(super) fn compensation<S: Scope, R>(&self, describe: impl FnOnce(&mut WorkflowBuilder<S>, &str) -> R) {
        let at = Some(Location::caller());
        let name = self.draft.borrow_mut().node_mut(self.node).map_or_else(String::new, |node| node.name.to_string());
        let name = format!("compensate {}", limits::cut(&name, limits::NAME_BYTES - "compensate ".len()));
        let block = nest::<S, _>(&self.draft, |flow| describe(flow, &name));
        let mut draft = self.draft.borrow_mut();
        let before = draft.node_mut(self.node).and_then(|node| node.compensation.replace(block));
        if before.is_some() {
            draft.found(self.node, at, ProblemKind::Twice { call: "compensate" });
        }
    }

    /// A compensation of one body.
    #[track_caller]
    pub(super) fn compensate_with<S: Scope, B: StepBody + Default>(
        &self,
        input: impl Fn(&mut B, S::View<'_>) + Send + Sync + 'static,
    ) {
        self.compensation::<S, _>(|flow, name| flow.step::<B>(name).input(input));
    }

    /// A compensation of one function.
    #[track_caller]
    pub(super) fn compensate<S, F>(&self, body: F)
    where
        S: Scope,
        F: AsyncFn(S::View<'_>, &StepContext) -> StepResult<()> + for<'a> StepFn<'a, S, ()> + Clone + Send + Sync + 'static,
    {
        self.compensation::<S, _>(|flow, name| flow.run(name, body));
    }
}

/// `cancel_when`, for builders with a `step: Handle` and a scope `S`.
macro_rules! cancel_method {
    () => {
        /// Gives the step up, with all that is open in it, as soon as the data pass this test, also before it begins: waits and sleeps are
        /// cancelled, bodies that run are told to end by their [token](crate::StepContext::cancellation), and dropped a little later; what
        /// they return counts no more. Asked whenever the data has changed; a pure function of them. What is being compensated is compensated to
        /// the end first.
        #[doc(alias = "CancelCondition")]
        pub fn cancel_when(self, test: impl Fn(S::View<'_>) -> bool + Send + Sync + 'static, then: crate::AfterCancel) -> Self {
            self.step.cancel_when::<S>(test, then);
            self
        }
    };
}

/// What happens when a step fails, for builders with a `step: Handle` and a scope `S`.
macro_rules! policy_methods {
    () => {
        /// What happens when the step fails, in place of the workflow's or the host's
        /// [default](crate::WorkflowBuilder::default_error_policy).
        #[doc(alias = "OnError")]
        pub fn on_error(self, retry: crate::Retry) -> Self {
            self.step.change(|step| step.retry = Some(retry));
            self
        }
    };
}

/// What undoes a step, for builders with a `step: Handle` and a scope `S`.
macro_rules! compensation_methods {
    () => {
        /// Undoes the step with a body of this type, when the [saga](crate::WorkflowBuilder::saga) around it fails after it has run, or the
        /// step itself fails for good. The input sees the data as they are then. Outside of a saga the workflow goes on afterwards.
        ///
        /// A compensation that fails is tried again as any other step; then the instance is suspended with the reason.
        #[track_caller]
        #[doc(alias = "CompensateWith")]
        pub fn compensate_with<C: crate::StepBody + Default>(
            self,
            input: impl Fn(&mut C, S::View<'_>) + Send + Sync + 'static,
        ) -> Self {
            self.step.compensate_with::<S, C>(input);
            self
        }

        /// As [`compensate_with`](Self::compensate_with), with an asynchronous closure or function.
        #[track_caller]
        pub fn compensate<F>(self, body: F) -> Self
        where
            F: AsyncFn(S::View<'_>, &crate::StepContext) -> crate::StepResult<()>
                + for<'a> crate::StepFn<'a, S, ()>
                + Clone
                + Send
                + Sync
                + 'static,
        {
            self.step.compensate::<S, F>(body);
            self
        }

        /// As [`compensate_with`](Self::compensate_with), with steps of any kind.
        #[track_caller]
        #[doc(alias = "CompensateWithSequence")]
        pub fn compensate_sequence<Described>(self, steps: impl FnOnce(&mut crate::WorkflowBuilder<S>) -> Described) -> Self {
            self.step.compensation::<S, _>(|flow, _| steps(flow));
            self
        }
    };
}

/// Which work a step's completion is worth, for builders with a `step: Handle`.
macro_rules! durability_methods {
    () => {
        /// The step is cheap and without effects: it needs no checkpoint of its own; see [`Durability::Replayable`].
        pub fn replayable(self) -> Self {
            self.step.change(|step| step.durability = Some(Durability::Replayable));
            self
        }

        /// A checkpoint follows the step, also where the workflow's [default](crate::WorkflowBuilder::default_durability) is another.
        #[doc(alias = "PersistOnClose")]
        pub fn persist_on_close(self) -> Self {
            self.step.change(|step| step.durability = Some(Durability::Checkpoint));
            self
        }

        /// The body writes in the transaction in which its checkpoint is written: its own SQL and the completion of the step are stored together,
        /// or neither. The body may still run more than once; what it has written then is taken back. Only on a store that has such
        /// transactions; the body gets it by [`StepContext::transaction`](crate::StepContext::transaction), and has to end within the host's
        /// `transaction_limit`. While it runs, no other checkpoint of the instance is written.
        pub fn transactional(self) -> Self {
            self.step.change(|step| step.transactional = true);
            self
        }

        /// The body asks for this service: a host without it does not start.
        pub fn needs<T: Send + Sync + 'static>(self) -> Self {
            self.step.needs::<T>();
            self
        }
    };
}

pub(super) use {cancel_method, compensation_methods, durability_methods, policy_methods};
