//! Steps that have somebody else do something, and wait for it: external workers and other workflows.

use super::{
    Workflow,
    handle::{Handle, cancel_method, compensation_methods, policy_methods},
    step::{innermost, plain},
};
use crate::{
    body::{ChildRequest, ExecutionResult, NewChild, StepContext},
    data::{Each, Scope, WorkflowData, view, wrong_type},
    definition::{BoxFuture, ErasedBody, Input, NodeIndex, NodeKind, SharedDraft},
    error::{StepError, StepResult},
};
use latchwork_core::store::{ActivityOutcome, Encoded, WorkflowStatus};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{any::Any, fmt, marker::PhantomData};

/// A worker submitted a failure.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the worker of activity `{activity}` failed: {data}")]
#[non_exhaustive]
pub struct ActivityFailed {
    /// The activity.
    pub activity: String,
    /// What the worker said.
    pub data: Value,
}

/// A workflow that a step waited for was terminated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sub-workflow `{workflow}` was terminated: {reason}")]
#[non_exhaustive]
pub struct SubWorkflowFailed {
    /// The workflow's id.
    pub workflow: &'static str,
    /// The reason of its end.
    pub reason: String,
}

/// Has a worker do something.
struct ActivityBody {
    name: String,
    parameters: Value,
    result: Option<Value>,
}

impl ErasedBody for ActivityBody {
    fn run<'a>(&'a mut self, cx: &'a StepContext) -> BoxFuture<'a, StepResult> {
        let answer = match cx.activity() {
            None => Ok(ExecutionResult::WaitForActivity {
                name: self.name.clone(),
                parameters: std::mem::take(&mut self.parameters),
                state: None,
            }),
            Some(ActivityOutcome::Success(result)) => {
                self.result = Some(result.clone());
                Ok(ExecutionResult::Next)
            }
            Some(ActivityOutcome::Failure(data)) => {
                Err(ActivityFailed { activity: self.name.clone(), data: data.clone() }.into())
            }
        };
        Box::pin(std::future::ready(answer))
    }

    fn body_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A step that has a worker do something.
pub(super) fn step<S: Scope, P: Serialize>(
    activity: &str,
    parameters: impl Fn(S::View<'_>) -> P + Send + Sync + 'static,
) -> NodeKind {
    let name = activity.to_owned();
    let input: Input = Box::new(move |body, data, items| {
        let body: &mut ActivityBody = body.downcast_mut().ok_or_else(wrong_type)?;
        body.parameters = serde_json::to_value(parameters(view::<S>(&**data, items)?))?;
        Ok(())
    });
    plain(move |_| Ok(Box::new(ActivityBody { name: name.clone(), parameters: Value::Null, result: None })), vec![input])
}

/// An [activity](crate::WorkflowBuilder::activity) for external workers: what comes out, and what happens when it fails.
pub struct ActivityBuilder<S> {
    step: Handle,
    scope: PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for ActivityBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActivityBuilder").field("node", &self.step.node).finish_non_exhaustive()
    }
}

impl<S: Scope> ActivityBuilder<S> {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex) -> Self {
        Self { step: Handle { draft, node }, scope: PhantomData }
    }

    /// The step's name, in place of the one derived from the activity.
    pub fn named(self, name: &str) -> Self {
        self.step.draft.borrow_mut().rename(self.step.node, name);
        self
    }

    /// The activity's name, by which workers ask for it, where it depends on the data.
    pub fn name_by(self, name: impl Fn(S::View<'_>) -> String + Send + Sync + 'static) -> Self {
        let input: Input = Box::new(move |body, data, items| {
            body.downcast_mut::<ActivityBody>().ok_or_else(wrong_type)?.name = name(view::<S>(&**data, items)?);
            Ok(())
        });
        self.step.change(|step| step.inputs.push(input));
        self
    }

    /// Changes the data by the worker's result, read as an `R`. A result that cannot be read so is an error of the step, which asks no worker
    /// again.
    pub fn output<R: DeserializeOwned>(self, output: impl Fn(R, &mut S::Data) + Send + Sync + 'static) -> Self {
        self.step.add_output(Box::new(move |body, data, _| {
            output(result_of(body)?, data.downcast_mut().ok_or_else(wrong_type)?);
            Ok(())
        }));
        self
    }

    cancel_method!();
    policy_methods!();
    compensation_methods!();
}

impl<S: Scope, I: WorkflowData> ActivityBuilder<Each<S, I>> {
    /// As [`output`](Self::output), with the item of the innermost for-each.
    pub fn output_each<R: DeserializeOwned>(self, output: impl Fn(R, &mut S::Data, &I) + Send + Sync + 'static) -> Self {
        self.step.add_output(Box::new(move |body, data, items| {
            output(result_of(body)?, data.downcast_mut().ok_or_else(wrong_type)?, innermost(items)?);
            Ok(())
        }));
        self
    }
}

fn result_of<R: DeserializeOwned>(body: &mut dyn Any) -> StepResult<R> {
    let body: &mut ActivityBody = body.downcast_mut().ok_or_else(wrong_type)?;
    let result = body.result.clone().ok_or_else(wrong_type)?;
    let unreadable = |error| StepError::permanent(format!("the result of activity `{}` cannot be read: {error}", body.name));
    serde_json::from_value(result).map_err(unreadable)
}

/// Starts a workflow, and waits for its end.
struct SubWorkflowBody {
    definition: &'static str,
    version: u32,
    data: Option<Encoded>,
    result: Option<Value>,
}

impl ErasedBody for SubWorkflowBody {
    fn run<'a>(&'a mut self, cx: &'a StepContext) -> BoxFuture<'a, StepResult> {
        Box::pin(std::future::ready(self.answer(cx)))
    }

    fn body_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl SubWorkflowBody {
    fn answer(&mut self, cx: &StepContext) -> StepResult {
        match &cx.kept.child {
            None => {
                let fingerprint = cx.fingerprint_of(self.definition, self.version).ok_or_else(|| {
                    StepError::from(format!("workflow `{}` version {} is not registered here", self.definition, self.version))
                })?;
                let data = self.data.take().ok_or_else(wrong_type)?;
                let child = NewChild { definition: self.definition, version: self.version, fingerprint, data };
                Ok(ExecutionResult::StartChild(Box::new(ChildRequest(child))))
            }
            Some(end) if end.status == WorkflowStatus::Complete => {
                self.result = Some(end.result.clone());
                Ok(ExecutionResult::Next)
            }
            Some(end) => {
                let reason = end.result.as_str().unwrap_or("no reason was given").to_owned();
                Err(SubWorkflowFailed { workflow: self.definition, reason }.into())
            }
        }
    }
}

/// A step that starts a workflow and waits for its end.
pub(super) fn sub_workflow<S: Scope, W: Workflow>(data: impl Fn(S::View<'_>) -> W::Data + Send + Sync + 'static) -> NodeKind {
    let input: Input = Box::new(move |body, all, items| {
        let body: &mut SubWorkflowBody = body.downcast_mut().ok_or_else(wrong_type)?;
        body.data = Some(Encoded::of(&data(view::<S>(&**all, items)?))?);
        Ok(())
    });
    let make = |_: &_| {
        let body = SubWorkflowBody { definition: W::ID, version: W::VERSION, data: None, result: None };
        Ok(Box::new(body) as Box<dyn ErasedBody>)
    };
    let mut kind = plain(make, vec![input]);
    if let NodeKind::Step(step) = &mut kind {
        step.calls = Some((W::ID, W::VERSION));
    }
    kind
}

/// A [sub-workflow](crate::WorkflowBuilder::sub_workflow): what comes out, and what happens when it is terminated.
pub struct SubWorkflowBuilder<S, W> {
    step: Handle,
    types: PhantomData<fn() -> (S, W)>,
}

impl<S, W> fmt::Debug for SubWorkflowBuilder<S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubWorkflowBuilder").field("node", &self.step.node).finish_non_exhaustive()
    }
}

impl<S: Scope, W: Workflow> SubWorkflowBuilder<S, W> {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex) -> Self {
        Self { step: Handle { draft, node }, types: PhantomData }
    }

    /// Changes the data by the data with which the other workflow was completed. One that was terminated is a failure of the step; another
    /// try starts another instance.
    pub fn output(self, output: impl Fn(W::Data, &mut S::Data) + Send + Sync + 'static) -> Self {
        self.step.add_output(Box::new(move |body, data, _| {
            output(data_of::<W>(body)?, data.downcast_mut().ok_or_else(wrong_type)?);
            Ok(())
        }));
        self
    }

    cancel_method!();
    policy_methods!();
    compensation_methods!();
}

impl<S: Scope, I: WorkflowData, W: Workflow> SubWorkflowBuilder<Each<S, I>, W> {
    /// As [`output`](Self::output), with the item of the innermost for-each.
    pub fn output_each(self, output: impl Fn(W::Data, &mut S::Data, &I) + Send + Sync + 'static) -> Self {
        self.step.add_output(Box::new(move |body, data, items| {
            output(data_of::<W>(body)?, data.downcast_mut().ok_or_else(wrong_type)?, innermost(items)?);
            Ok(())
        }));
        self
    }
}

fn data_of<W: Workflow>(body: &mut dyn Any) -> StepResult<W::Data> {
    let body: &mut SubWorkflowBody = body.downcast_mut().ok_or_else(wrong_type)?;
    let unreadable = |error| StepError::permanent(format!("the data of sub-workflow `{}` cannot be read: {error}", W::ID));
    serde_json::from_value(body.result.clone().ok_or_else(wrong_type)?).map_err(unreadable)
}
