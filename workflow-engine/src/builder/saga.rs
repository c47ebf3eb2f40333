use super::handle::{Handle, cancel_method, compensation_methods};
use crate::{
    data::Scope,
    definition::{NodeIndex, NodeKind, SharedDraft},
    policy::Retry,
};
use std::{fmt, marker::PhantomData};

/// A [saga](crate::WorkflowBuilder::saga): how often it is tried, and what comes when it has failed.
pub struct SagaBuilder<S> {
    step: Handle,
    scope: PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for SagaBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaBuilder").field("node", &self.step.node).finish_non_exhaustive()
    }
}

impl<S: Scope> SagaBuilder<S> {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex) -> Self {
        Self { step: Handle { draft, node }, scope: PhantomData }
    }

    /// How often the saga is tried as a whole, each time after all was compensated, and what comes when it has failed for good. Each attempt
    /// has [idempotency keys](crate::StepContext::idempotency_key) of its own. Default: once.
    ///
    /// What comes then, in this order of what the policy says: [`then_continue`](Retry::then_continue) goes on after the saga,
    /// [`then_suspend`](Retry::then_suspend) suspends the instance, whose `retry_step` begins another attempt,
    /// [`then_terminate`](Retry::then_terminate) terminates it. When the policy says nothing: the saga around this one fails with it; without one
    /// the instance is terminated, with the reason.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # use std::time::Duration;
    /// # async fn step(_: &u32, _: &StepContext) -> StepResult<()> { Ok(()) }
    /// # fn steps(flow: &mut WorkflowBuilder<u32>) {
    /// flow.saga("book", |saga| {
    ///     saga.run("book flight", step).on_error(Retry::never()).compensate(async |_, _| Ok(()));
    ///     saga.run("book hotel", step).on_error(Retry::never()).compensate(async |_, _| Ok(()));
    /// })
    /// .on_error(Retry::fixed(Duration::from_secs(60)).max_attempts(3).then_continue());
    /// # }
    /// ```
    #[doc(alias = "OnError")]
    pub fn on_error(self, retry: Retry) -> Self {
        if let Some(NodeKind::Saga(saga)) = self.step.draft.borrow_mut().kind_mut(self.step.node) {
            saga.retry = Some(retry);
        }
        self
    }

    compensation_methods!();
    cancel_method!();
}
