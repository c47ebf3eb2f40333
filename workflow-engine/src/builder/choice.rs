use super::{WorkflowBuilder, nest};
use crate::{
    data::{AnyData, Items, Scope},
    definition::{NodeIndex, NodeKind, SharedDraft},
    error::StepResult,
};
use std::{fmt, marker::PhantomData, sync::Arc};

/// Lets user code describe the next branch of a choice or a parallel; gives the branch's number.
pub(super) fn add_branch<S: Scope, R>(
    draft: &SharedDraft,
    node: NodeIndex,
    describe: impl FnOnce(&mut WorkflowBuilder<S>) -> R,
) -> usize {
    let block = nest(draft, describe);
    match draft.borrow_mut().kind_mut(node) {
        Some(NodeKind::Choose { branches, .. } | NodeKind::Parallel { branches } | NodeKind::First { branches }) => {
            branches.push(block);
            branches.len() - 1
        }
        _ => 0,
    }
}

/// Adds the branch that is taken when no other is.
fn add_otherwise<S: Scope, R>(draft: &SharedDraft, node: NodeIndex, describe: impl FnOnce(&mut WorkflowBuilder<S>) -> R) {
    let branch = add_branch(draft, node, describe);
    let mut draft = draft.borrow_mut();
    draft.total.insert(node);
    if let Some(NodeKind::Choose { select, .. }) = draft.kind_mut(node) {
        let fitting = std::mem::replace(select, Box::new(|_, _| Ok(None)));
        *select = Box::new(move |data, items| Ok(Some(fitting(data, items)?.unwrap_or(branch))));
    }
}

/// A [`when`](WorkflowBuilder::when), to which another branch can be added.
pub struct WhenBuilder<S> {
    draft: SharedDraft,
    node: NodeIndex,
    scope: PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for WhenBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WhenBuilder").field("node", &self.node).finish_non_exhaustive()
    }
}

impl<S: Scope> WhenBuilder<S> {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex) -> Self {
        Self { draft, node, scope: PhantomData }
    }

    /// What to run when the test does not hold.
    #[doc(alias = "Else")]
    pub fn otherwise<R>(self, other: impl FnOnce(&mut WorkflowBuilder<S>) -> R) {
        add_otherwise(&self.draft, self.node, other);
    }
}

type Case<V> = Arc<dyn Fn(&V) -> bool + Send + Sync>;
type ValueOf<V> = Arc<dyn Fn(&AnyData, &Items) -> StepResult<V> + Send + Sync>;

/// A [`decide`](WorkflowBuilder::decide), to which cases are added. The first that fits is taken.
pub struct DecideBuilder<S, V> {
    draft: SharedDraft,
    node: NodeIndex,
    value: ValueOf<V>,
    cases: Vec<Case<V>>,
    scope: PhantomData<fn() -> S>,
}

impl<S, V> fmt::Debug for DecideBuilder<S, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecideBuilder").field("node", &self.node).field("cases", &self.cases.len()).finish_non_exhaustive()
    }
}

impl<S: Scope, V: Send + Sync + 'static> DecideBuilder<S, V> {
    pub(super) fn new(
        draft: SharedDraft,
        node: NodeIndex,
        value: impl Fn(&AnyData, &Items) -> StepResult<V> + Send + Sync + 'static,
    ) -> Self {
        Self { draft, node, value: Arc::new(value), cases: Vec::new(), scope: PhantomData }
    }

    /// The branch for values equal to this one. An empty branch does nothing and goes on.
    pub fn case<T, R>(self, value: T, branch: impl FnOnce(&mut WorkflowBuilder<S>) -> R) -> Self
    where
        V: PartialEq<T>,
        T: Send + Sync + 'static,
    {
        self.case_if(move |decided| *decided == value, branch)
    }

    /// The branch for values that pass this test.
    pub fn case_if<R>(
        mut self,
        test: impl Fn(&V) -> bool + Send + Sync + 'static,
        branch: impl FnOnce(&mut WorkflowBuilder<S>) -> R,
    ) -> Self {
        add_branch(&self.draft, self.node, branch);
        self.cases.push(Arc::new(test));
        let (value, cases) = (self.value.clone(), self.cases.clone());
        if let Some(NodeKind::Choose { select, .. }) = self.draft.borrow_mut().kind_mut(self.node) {
            *select = Box::new(move |data, items| {
                let value = value(data, items)?;
                Ok(cases.iter().position(|case| case(&value)))
            });
        }
        self
    }

    /// The branch for all other values.
    pub fn otherwise<R>(self, other: impl FnOnce(&mut WorkflowBuilder<S>) -> R) {
        add_otherwise(&self.draft, self.node, other);
    }
}
