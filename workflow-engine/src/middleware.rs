//! Code around workflows and steps: logging, tenancy, retries, measurements, clean-up.
//!
//! A [`StepMiddleware`] stands around each run of a body, a [`WorkflowMiddleware`] at the beginning, at each burst and at the end of each
//! instance. They are registered on the host's builder, and called in the order in which they were registered; of step middleware the first is
//! the outermost.
//!
//! ```
//! use latchwork_engine::{ExecutionResult, Next, StepContext, StepMiddleware, StepResult};
//!
//! struct Log;
//!
//! #[latchwork_core::async_trait]
//! impl StepMiddleware for Log {
//!     async fn run(&self, cx: &StepContext, next: Next<'_>) -> StepResult {
//!         let answer = next.run().await;
//!         println!("{} try {}: {}", cx.step(), cx.attempt(), if answer.is_ok() { "done" } else { "failed" });
//!         answer
//!     }
//! }
//! ```

use crate::{
    body::StepContext,
    data::AnyData,
    definition::ErasedBody,
    error::{StepError, StepResult},
    services::{ServiceMissing, Services},
};
use chrono::{DateTime, Utc};
use latchwork_core::{
    async_trait,
    store::{InstanceId, WorkflowStatus},
};
use std::{any::Any, fmt, sync::Arc};

/// Stands around each run of a step's body.
#[doc(alias = "IWorkflowStepMiddleware")]
#[async_trait]
pub trait StepMiddleware: Send + Sync + 'static {
    /// Runs the step, by [`next.run()`](Next::run), or answers in its place. An error is one of the step.
    async fn run(&self, cx: &StepContext, next: Next<'_>) -> StepResult {
        let _ = cx;
        next.run().await
    }
}

/// What a step middleware stands around: the other middleware, and the body at last.
#[must_use = "the step does not run until `run` is called"]
pub struct Next<'a> {
    pub(crate) rest: &'a [Arc<dyn StepMiddleware>],
    pub(crate) body: &'a mut dyn ErasedBody,
    pub(crate) cx: &'a StepContext,
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("step", &self.cx.step()).field("middleware", &self.rest.len()).finish_non_exhaustive()
    }
}

impl Next<'_> {
    /// Runs what is inside.
    ///
    /// # Errors
    /// The step's.
    pub async fn run(self) -> StepResult {
        match self.rest.split_first() {
            Some((first, rest)) => first.run(self.cx, Next { rest, body: self.body, cx: self.cx }).await,
            None => self.body.run(self.cx).await,
        }
    }

    /// The body with its inputs applied, when it is a `B`.
    pub fn body<B: 'static>(&mut self) -> Option<&mut B> {
        self.body.body_mut().downcast_mut()
    }

    /// Answers in place of a step that is a function, with its result; the function does not run.
    ///
    /// # Errors
    /// When the step is no function with a result of this type.
    pub fn answer<R: Send + 'static>(self, result: R) -> StepResult {
        if self.body.put_result(&mut Some(result)) {
            Ok(crate::ExecutionResult::Next)
        } else {
            let (step, wanted) = (self.cx.step(), std::any::type_name::<R>());
            Err(StepError::permanent(format!("step `{step}` is no function with a result of type `{wanted}`")))
        }
    }
}

/// Runs a body with what stands around it.
pub(crate) async fn run(body: &mut dyn ErasedBody, cx: &StepContext) -> StepResult {
    if cx.burst.middleware.is_empty() {
        return body.run(cx).await;
    }
    Next { rest: &cx.burst.middleware, body, cx }.run().await
}

/// Stands at the beginning, at each burst and at the end of each instance of any workflow.
#[doc(alias = "IWorkflowMiddleware")]
#[async_trait]
pub trait WorkflowMiddleware: Send + Sync + 'static {
    /// Called by [`start_workflow`](crate::WorkflowHost::start_workflow) before the instance is created, on the caller's task. An error refuses
    /// the start.
    async fn before_start(&self, workflow: &WorkflowContext<'_>) -> StepResult<()> {
        let _ = workflow;
        Ok(())
    }

    /// Called at the beginning of each burst, under the instance's lock. After an error the burst is tried again, after the host's
    /// `error_retry_interval`.
    async fn before_burst(&self, workflow: &WorkflowContext<'_>) -> StepResult<()> {
        let _ = workflow;
        Ok(())
    }

    /// Called for every end of an instance (complete, ended early, terminated), under its lock, before the end is stored: at least once, also
    /// over crashes. After an error it is tried again by the host's default policy; when the tries are used up the error is kept with the
    /// instance, and the end is stored.
    #[doc(alias = "PostWorkflow")]
    async fn at_end(&self, workflow: &WorkflowContext<'_>) -> StepResult<()> {
        let _ = workflow;
        Ok(())
    }
}

/// What a workflow middleware is told of an instance.
pub struct WorkflowContext<'a> {
    pub(crate) instance: &'a InstanceId,
    pub(crate) definition: &'a str,
    pub(crate) version: u32,
    pub(crate) business_key: Option<&'a str>,
    pub(crate) reference: Option<&'a str>,
    pub(crate) created: Option<DateTime<Utc>>,
    pub(crate) status: WorkflowStatus,
    pub(crate) reason: Option<&'a str>,
    pub(crate) data: Option<&'a AnyData>,
    pub(crate) services: &'a Services,
}

impl fmt::Debug for WorkflowContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowContext")
            .field("instance", &self.instance)
            .field("definition", &self.definition)
            .field("version", &self.version)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl WorkflowContext<'_> {
    /// The instance.
    #[must_use]
    pub fn instance(&self) -> &InstanceId {
        self.instance
    }

    /// The workflow's id.
    #[must_use]
    pub fn definition(&self) -> &str {
        self.definition
    }

    /// The workflow's version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The business key.
    #[must_use]
    pub fn business_key(&self) -> Option<&str> {
        self.business_key
    }

    /// The user's reference.
    #[must_use]
    pub fn reference(&self) -> Option<&str> {
        self.reference
    }

    /// When it was created, by the store's clock; `None` before it is.
    #[must_use]
    pub fn created(&self) -> Option<DateTime<Utc>> {
        self.created
    }

    /// Where it stands; at its end, how it ends.
    #[must_use]
    pub fn status(&self) -> WorkflowStatus {
        self.status
    }

    /// Why, where the status was not reached in the ordinary way.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason
    }

    /// Its data, when they are a `D`; `None` also when the instance is terminated by a node that does not have its workflow.
    #[must_use]
    pub fn data<D: Any>(&self) -> Option<&D> {
        self.data?.downcast_ref()
    }

    /// The host's service of this type.
    ///
    /// # Errors
    /// [`ServiceMissing`].
    pub fn service<T: Send + Sync + 'static>(&self) -> Result<&T, ServiceMissing> {
        self.services.get()
    }
}

/// The middleware of a host, in the order of their registration.
#[derive(Clone, Default)]
pub(crate) struct Middleware {
    pub(crate) steps: Arc<[Arc<dyn StepMiddleware>]>,
    pub(crate) workflows: Arc<[Arc<dyn WorkflowMiddleware>]>,
}

impl fmt::Debug for Middleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Middleware").field("steps", &self.steps.len()).field("workflows", &self.workflows.len()).finish()
    }
}
