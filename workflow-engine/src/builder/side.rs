use super::handle::{Handle, cancel_method};
use crate::{
    data::{Scope, view},
    definition::{NodeIndex, NodeKind, ProblemKind, SharedDraft},
};
use std::{fmt, marker::PhantomData};

/// A [`recur`](crate::WorkflowBuilder::recur) or a [`recur_cron`](crate::WorkflowBuilder::recur_cron): when it is over.
pub struct RecurBuilder<S> {
    step: Handle,
    scope: PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for RecurBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecurBuilder").field("node", &self.step.node).finish_non_exhaustive()
    }
}

impl<S: Scope> RecurBuilder<S> {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex) -> Self {
        Self { step: Handle { draft, node }, scope: PhantomData }
    }

    pub(super) fn found(&self, kind: ProblemKind) {
        self.step.draft.borrow_mut().found(self.step.node, None, kind);
    }

    /// When it is over: asked before each round. A round that has begun comes to its end; to cut it short, and to wake it from its sleep, use
    /// [`cancel_when`](Self::cancel_when). Without it, it recurs until the workflow [ends](crate::WorkflowBuilder::end).
    pub fn until(self, is_over: impl Fn(S::View<'_>) -> bool + Send + Sync + 'static) -> Self {
        if let Some(NodeKind::Recur(recur)) = self.step.draft.borrow_mut().kind_mut(self.step.node) {
            recur.until = Some(Box::new(move |data, items| Ok(is_over(view::<S>(data, items)?))));
        }
        self
    }

    cancel_method!();
}
