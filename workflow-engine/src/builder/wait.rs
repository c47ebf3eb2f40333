use super::{
    WorkflowBuilder,
    handle::{Handle, cancel_method},
    nest,
};
use crate::{
    data::{Each, Scope, WorkflowData, view, wrong_type},
    definition::{KeyOf, NodeIndex, NodeKind, OnEvent, ProblemKind, SharedDraft, WaitNode},
    error::{StepError, StepResult},
};
use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{fmt, marker::PhantomData, panic::Location, sync::Arc, time::Duration};

/// A wait for an event with this key.
pub(super) fn on(event: &str, key: KeyOf) -> NodeKind {
    NodeKind::Wait(WaitNode { event: event.into(), key, as_of: None, output: None, timeout: None, late: None })
}

/// A [wait](WorkflowBuilder::wait_for) for an event.
pub struct WaitBuilder<S> {
    step: Handle,
    event: Arc<str>,
    scope: PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for WaitBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitBuilder").field("event", &self.event).finish_non_exhaustive()
    }
}

impl<S: Scope> WaitBuilder<S> {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex, event: &str) -> Self {
        Self { step: Handle { draft, node }, event: event.into(), scope: PhantomData }
    }

    cancel_method!();

    fn with(self, change: impl FnOnce(&mut WaitNode)) -> Self {
        if let Some(NodeKind::Wait(wait)) = self.step.draft.borrow_mut().kind_mut(self.step.node) {
            change(wait);
        }
        self
    }

    fn then_output(self, next: OnEvent) -> Self {
        self.with(|wait| {
            wait.output = Some(match wait.output.take() {
                None => next,
                Some(first) => Box::new(move |event, data, items| {
                    first(event, data, items)?;
                    next(event, data, items)
                }),
            });
        })
    }

    /// The step's name, in place of the one derived from the event.
    pub fn named(self, name: &str) -> Self {
        self.step.draft.borrow_mut().rename(self.step.node, name);
        self
    }

    /// What to do to the data with the event's data, read as an `E`. An event that cannot be read so is an error of the step.
    pub fn output<E: DeserializeOwned>(self, output: impl Fn(E, &mut S::Data) + Send + Sync + 'static) -> Self {
        let name = self.event.clone();
        self.then_output(Box::new(move |event, data, _| {
            output(read(&name, event)?, data.downcast_mut().ok_or_else(wrong_type)?);
            Ok(())
        }))
    }

    /// Events before this time do not count. The default is the instance's creation; an earlier time reaches back before it.
    #[doc(alias = "effectiveDate")]
    pub fn as_of(self, time: impl Fn(S::View<'_>) -> DateTime<Utc> + Send + Sync + 'static) -> Self {
        self.with(|wait| wait.as_of = Some(Box::new(move |data, items| Ok(time(view::<S>(data, items)?)))))
    }

    /// How long to wait at most. Then the workflow goes on without the event, after [`on_timeout`](Self::on_timeout) if there is one.
    pub fn timeout(self, span: Duration) -> Self {
        self.with(|wait| wait.timeout = Some(Box::new(move |_, _| Ok(span))))
    }

    /// What to run when the [time](Self::timeout) is over without the event; then the workflow goes on.
    #[track_caller]
    pub fn on_timeout<R>(self, late: impl FnOnce(&mut WorkflowBuilder<S>) -> R) -> Self {
        let at = Some(Location::caller());
        let (draft, node) = (self.step.draft.clone(), self.step.node);
        let block = nest(&draft, late);
        let mut before = None;
        let this = self.with(|wait| before = wait.late.replace(block));
        if before.is_some() {
            draft.borrow_mut().found(node, at, ProblemKind::Twice { call: "on_timeout" });
        }
        this
    }
}

impl<S: Scope, I: WorkflowData> WaitBuilder<Each<S, I>> {
    /// As [`output`](Self::output), with the item of the innermost for-each.
    pub fn output_each<E: DeserializeOwned>(self, output: impl Fn(E, &mut S::Data, &I) + Send + Sync + 'static) -> Self {
        let name = self.event.clone();
        self.then_output(Box::new(move |event, data, items| {
            let item = items.last().and_then(|item| item.downcast_ref()).ok_or_else(wrong_type)?;
            output(read(&name, event)?, data.downcast_mut().ok_or_else(wrong_type)?, item);
            Ok(())
        }))
    }
}

fn read<E: DeserializeOwned>(name: &str, event: &Value) -> StepResult<E> {
    E::deserialize(event).map_err(|e| StepError::permanent(format!("the data of event `{name}` cannot be read: {e}")))
}
