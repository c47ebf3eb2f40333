//! Calls what stands around workflows.

use super::Node;
use crate::{
    instance::panicked,
    middleware::{WorkflowContext, WorkflowMiddleware},
};
use futures_util::FutureExt;
use latchwork_core::clock::ClockExt;
use std::panic::AssertUnwindSafe;
use tokio_util::sync::CancellationToken;

/// What became of telling the end of an instance.
pub(super) enum Told {
    Done,
    /// It failed as often as it may.
    GaveUp {
        error: String,
        attempts: u32,
    },
    /// The lock is lost.
    Lost,
    /// The node stops.
    Stopped,
}

impl Node {
    /// Calls a middleware for the end of an instance, again after errors.
    pub(super) async fn call_at_end(
        &self,
        middleware: &dyn WorkflowMiddleware,
        workflow: &WorkflowContext<'_>,
        lost: &CancellationToken,
    ) -> Told {
        let mut attempts = 0;
        loop {
            let call = AssertUnwindSafe(middleware.at_end(workflow)).catch_unwind();
            let called = tokio::select! {
                called = call => called.unwrap_or_else(|panic| Err(panicked(&*panic))),
                () = lost.cancelled() => return Told::Lost,
                () = self.grace_is_over.cancelled() => return Told::Stopped,
            };
            let Err(error) = called else { return Told::Done };
            attempts += 1;
            tracing::warn!(instance = %workflow.instance(), attempts, %error, "a middleware failed at the end of an instance");
            metrics::counter!("latchwork.middleware.errors").increment(1);
            let pause = match error.is_permanent() {
                true => None,
                false => self.rules.retry.pause(attempts, 0),
            };
            let Some(pause) = pause else { return Told::GaveUp { error: error.to_string(), attempts } };
            tokio::select! {
                () = self.clock.sleep(pause) => {}
                () = lost.cancelled() => return Told::Lost,
                () = self.stopping.cancelled() => return Told::Stopped,
            }
        }
    }

    /// Calls the middleware for the beginning of a burst; the first error, if any.
    pub(super) async fn call_before_burst(&self, workflow: &WorkflowContext<'_>) -> Result<(), String> {
        for middleware in self.middleware.workflows.iter() {
            let called = AssertUnwindSafe(middleware.before_burst(workflow)).catch_unwind().await;
            if let Err(error) = called.unwrap_or_else(|panic| Err(panicked(&*panic))) {
                metrics::counter!("latchwork.middleware.errors").increment(1);
                return Err(error.to_string());
            }
        }
        Ok(())
    }
}
