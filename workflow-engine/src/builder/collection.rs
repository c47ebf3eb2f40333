use super::{
    WorkflowBuilder,
    choice::add_branch,
    handle::{Handle, cancel_method},
};
use crate::{
    data::Scope,
    definition::{NodeIndex, NodeKind, ProblemKind, SharedDraft},
};
use std::{collections::HashSet, fmt, marker::PhantomData, panic::Location};

/// How many items a for-each runs at a time when nothing else is said.
pub(crate) const WINDOW: usize = 16;

/// A [`for_each`](WorkflowBuilder::for_each), of which can be said how many items run at a time.
pub struct ForEachBuilder<S> {
    step: Handle,
    scope: PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for ForEachBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForEachBuilder").field("node", &self.step.node).finish_non_exhaustive()
    }
}

impl<S: Scope> ForEachBuilder<S> {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex) -> Self {
        Self { step: Handle { draft, node }, scope: PhantomData }
    }

    cancel_method!();

    /// One item after the other, in their order.
    pub fn sequential(self) -> Self {
        self.at_most(1)
    }

    /// At most so many items at a time, at least 1. The default is 16.
    pub fn at_most(self, items: usize) -> Self {
        if let Some(NodeKind::ForEach { window, .. }) = self.step.draft.borrow_mut().kind_mut(self.step.node) {
            *window = items.max(1);
        }
        self
    }
}

/// The branches of a [`parallel`](WorkflowBuilder::parallel) or a [`first_of`](WorkflowBuilder::first_of).
pub struct Branches<S> {
    draft: SharedDraft,
    node: NodeIndex,
    names: HashSet<String>,
    scope: PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for Branches<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Branches").field("node", &self.node).field("names", &self.names).finish_non_exhaustive()
    }
}

impl<S: Scope> Branches<S> {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex) -> Self {
        Self { draft, node, names: HashSet::new(), scope: PhantomData }
    }

    /// A branch, with a name that is unique among its siblings; it is for readers, instances are not tied to it.
    #[track_caller]
    pub fn branch<R>(&mut self, name: &str, branch: impl FnOnce(&mut WorkflowBuilder<S>) -> R) {
        let at = Some(Location::caller());
        add_branch(&self.draft, self.node, branch);
        let mut draft = self.draft.borrow_mut();
        draft.check_name(self.node, at, "branch name", name);
        if !self.names.insert(name.to_owned()) {
            draft.found(self.node, at, ProblemKind::DuplicateBranch { branch: name.to_owned() });
        }
    }
}

/// Steps that belong together: a [`group`](WorkflowBuilder::group), a [`parallel`](WorkflowBuilder::parallel), a
/// [`first_of`](WorkflowBuilder::first_of) or a [`schedule`](WorkflowBuilder::schedule).
pub struct GroupBuilder<S> {
    step: Handle,
    scope: PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for GroupBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupBuilder").field("node", &self.step.node).finish_non_exhaustive()
    }
}

impl<S: Scope> GroupBuilder<S> {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex) -> Self {
        Self { step: Handle { draft, node }, scope: PhantomData }
    }

    cancel_method!();
}
