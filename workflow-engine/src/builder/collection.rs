use super::{WorkflowBuilder, choice::add_branch};
use crate::{
    data::Scope,
    definition::{NodeIndex, NodeKind, ProblemKind, SharedDraft},
};
use std::{collections::HashSet, fmt, marker::PhantomData, panic::Location};

/// How many items a for-each runs at a time when nothing else is said.
pub(crate) const WINDOW: usize = 16;

/// A [`for_each`](WorkflowBuilder::for_each), of which can be said how many items run at a time.
pub struct ForEachBuilder {
    draft: SharedDraft,
    node: NodeIndex,
}

impl fmt::Debug for ForEachBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForEachBuilder").field("node", &self.node).finish_non_exhaustive()
    }
}

impl ForEachBuilder {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex) -> Self {
        Self { draft, node }
    }

    /// One item after the other, in their order.
    pub fn sequential(self) -> Self {
        self.at_most(1)
    }

    /// At most so many items at a time, at least 1. The default is 16.
    pub fn at_most(self, items: usize) -> Self {
        if let Some(NodeKind::ForEach { window, .. }) = self.draft.borrow_mut().kind_mut(self.node) {
            *window = items.max(1);
        }
        self
    }
}

/// The branches of a [`parallel`](WorkflowBuilder::parallel).
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
