//! Step bodies: what users implement, what they are given, and what they answer.

use crate::instance::ChildEnd;
use crate::{
    data::Scope,
    error::{StepError, StepResult},
    services::{ServiceMissing, Services},
};
use chrono::{DateTime, Utc};
use latchwork_core::{
    limits, name,
    store::{ActivityOutcome, Encoded, EventId, InstanceId, NewEvent, NewInstance, PointerId, StepTransaction},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// A step of a workflow. A fresh one is made for each run; its fields are set by inputs and read by outputs.
///
/// ```
/// use latchwork_engine::{ExecutionResult, StepBody, StepContext, StepResult};
///
/// #[derive(Default)]
/// struct Greet { name: String, greeting: String }
///
/// impl StepBody for Greet {
///     async fn run(&mut self, _cx: &StepContext) -> StepResult {
///         self.greeting = format!("hello, {}", self.name);
///         Ok(ExecutionResult::next())
///     }
/// }
/// ```
///
/// A body may run again when its completion was not committed: after a crash, a lost lock, a cancellation at stop. Make its effects
/// repeatable with [`StepContext::idempotency_key`]. A body that blocks its thread belongs into `tokio::task::spawn_blocking`.
#[doc(alias = "IStepBody")]
#[doc(alias = "StepBodyAsync")]
#[diagnostic::on_unimplemented(message = "`{Self}` is not a step: implement `StepBody` for it")]
pub trait StepBody: Send + 'static {
    /// Does the step's work.
    fn run(&mut self, cx: &StepContext) -> impl Future<Output = StepResult> + Send;
}

/// What a body answers, beside errors.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ExecutionResult {
    /// Done; go on.
    Next,
    /// Done, with a value that decides the branch to take.
    Outcome(Value),
    /// Not done: keep this state, and run again at once.
    Persist(Value),
    /// Not done: keep this state, and run again after this time.
    Sleep {
        /// How long.
        span: Duration,
        /// What [`StepContext::state`] gives in the next run.
        state: Option<Value>,
    },
    /// Run the step's branch once for each value, then go on.
    Branch(Vec<Value>),
    /// Not done: wait for an event, and run again with [`StepContext::event`].
    WaitForEvent {
        /// The event's name.
        name: String,
        /// The event's key.
        key: String,
        /// Events before this time do not count; default is the instance's creation.
        as_of: Option<DateTime<Utc>>,
        /// What [`StepContext::state`] gives in the next run.
        state: Option<Value>,
    },
    /// Not done: wait for an external worker, and run again with [`StepContext::activity`].
    WaitForActivity {
        /// The activity's name, by which workers ask for it.
        name: String,
        /// What the worker is given.
        parameters: Value,
        /// What [`StepContext::state`] gives in the next run.
        state: Option<Value>,
    },
    /// Not done: start a workflow, and run again when it has ended. Made by [`sub_workflow`](crate::WorkflowBuilder::sub_workflow).
    #[doc(hidden)]
    StartChild(Box<ChildRequest>),
}

/// A workflow to be started and waited for.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq)]
pub struct ChildRequest(pub(crate) NewChild);

/// See [`ChildRequest`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewChild {
    pub(crate) definition: &'static str,
    pub(crate) version: u32,
    pub(crate) fingerprint: Arc<str>,
    pub(crate) data: Encoded,
}

impl ExecutionResult {
    /// Done; go on.
    #[must_use]
    pub fn next() -> Self {
        Self::Next
    }

    /// Done, with a value that decides the branch to take; see [`StepBuilder::outcome`](crate::StepBuilder::outcome).
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn outcome(value: impl Serialize) -> StepResult {
        Ok(Self::Outcome(serde_json::to_value(value)?))
    }

    /// Not done: keep this state, and run again at once.
    ///
    /// # Errors
    /// When the state cannot be written as JSON.
    pub fn persist(state: impl Serialize) -> StepResult {
        Ok(Self::Persist(serde_json::to_value(state)?))
    }

    /// Not done: run again after `span`.
    #[must_use]
    pub fn sleep(span: Duration) -> Self {
        Self::Sleep { span, state: None }
    }

    /// Run the step's branch once for each value, then go on; see [`StepBuilder::branches`](crate::StepBuilder::branches).
    ///
    /// # Errors
    /// When a value cannot be written as JSON.
    pub fn branch<T: Serialize>(values: impl IntoIterator<Item = T>) -> StepResult {
        Ok(Self::Branch(values.into_iter().map(serde_json::to_value).collect::<Result<_, _>>()?))
    }

    /// Not done: wait for the event, and run again with it.
    #[must_use]
    pub fn wait_for_event(name: impl Into<String>, key: impl Into<String>) -> Self {
        Self::WaitForEvent { name: name.into(), key: key.into(), as_of: None, state: None }
    }

    /// Not done: wait for an external worker, and run again with its result.
    ///
    /// # Errors
    /// When the parameters cannot be written as JSON.
    pub fn wait_for_activity(name: impl Into<String>, parameters: impl Serialize) -> StepResult {
        Ok(Self::WaitForActivity { name: name.into(), parameters: serde_json::to_value(parameters)?, state: None })
    }

    /// With state to keep until the next run. No effect on results that end the step.
    ///
    /// # Errors
    /// When the state cannot be written as JSON.
    pub fn with_state(mut self, kept: impl Serialize) -> StepResult {
        if let Self::Sleep { state, .. } | Self::WaitForEvent { state, .. } | Self::WaitForActivity { state, .. } = &mut self {
            *state = Some(serde_json::to_value(kept)?);
        }
        Ok(self)
    }

    /// Waiting for events from this time on, instead of the instance's creation. No effect on other results.
    #[must_use]
    pub fn as_of(mut self, time: DateTime<Utc>) -> Self {
        if let Self::WaitForEvent { as_of, .. } = &mut self {
            *as_of = Some(time);
        }
        self
    }
}

/// What a body is given.
#[doc(alias = "IStepExecutionContext")]
#[derive(Debug)]
pub struct StepContext {
    pub(crate) burst: Arc<BurstContext>,
    pub(crate) step: Arc<str>,
    pub(crate) pointer: PointerId,
    pub(crate) key: OnceLock<String>,
    pub(crate) attempt: u32,
    pub(crate) kept: Kept,
    /// Of a body that can be told to end alone.
    pub(crate) own_cancellation: Option<CancellationToken>,
    /// What the body asked the host to do together with its checkpoint.
    pub(crate) outbox: Arc<Mutex<Outbox>>,
    /// Of a transactional step.
    pub(crate) transaction: Option<SharedTransaction>,
}

impl Clone for StepContext {
    /// A clone lives as long as it likes, so it has no [transaction](Self::transaction), and what is published by it goes nowhere once the
    /// body has ended.
    fn clone(&self) -> Self {
        Self {
            burst: self.burst.clone(),
            step: self.step.clone(),
            pointer: self.pointer,
            key: self.key.clone(),
            attempt: self.attempt,
            kept: self.kept.clone(),
            own_cancellation: self.own_cancellation.clone(),
            outbox: self.outbox.clone(),
            transaction: None,
        }
    }
}

/// Calls of a body that are stored with its checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) events: Vec<NewEvent>,
    pub(crate) instances: Vec<NewInstance>,
}

/// The open transaction of a step; empty when it has ended.
pub(crate) type SharedTransaction = Arc<tokio::sync::Mutex<Option<OpenTransaction>>>;

/// A transaction of the store, in which a step writes.
pub(crate) struct OpenTransaction(pub(crate) Box<dyn StepTransaction>);

impl std::fmt::Debug for OpenTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenTransaction")
    }
}

/// The transaction of a [transactional](crate::StepBuilder::transactional) step, while its body writes in it.
#[derive(Debug)]
pub struct TransactionGuard<'a>(tokio::sync::MutexGuard<'a, Option<OpenTransaction>>);

impl TransactionGuard<'_> {
    /// The store's own transaction, which is of the type that its client crate says, for example `SqliteTransaction`.
    ///
    /// # Errors
    /// When the store's transactions are of another type.
    pub fn of<T: 'static>(&mut self) -> StepResult<&mut T> {
        let transaction = self.0.as_mut().and_then(|open| open.0.as_any().downcast_mut());
        transaction.ok_or_else(|| StepError::permanent(format!("the store's transaction is no `{}`", std::any::type_name::<T>())))
    }
}

/// What all bodies of a burst are given.
pub(crate) struct BurstContext {
    pub(crate) services: Arc<Services>,
    pub(crate) instance: InstanceId,
    pub(crate) fencing: Option<u64>,
    /// The fingerprints of the host's workflows.
    pub(crate) known: Arc<Known>,
    pub(crate) middleware: Arc<[Arc<dyn crate::StepMiddleware>]>,
    /// Largest data of an event, and of an instance, in bytes of JSON.
    pub(crate) event_limit: usize,
    pub(crate) data_limit: usize,
    /// Fires when bodies should end early.
    pub(crate) cancellation: CancellationToken,
}

impl std::fmt::Debug for BurstContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BurstContext").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// The fingerprints of workflows, by id and version.
pub(crate) type Known = std::collections::HashMap<(Arc<str>, u32), Arc<str>>;

/// What a pointer keeps for the next run of its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) state: Option<Arc<Value>>,
    pub(crate) event: Option<Arc<Value>>,
    pub(crate) activity: Option<Arc<ActivityOutcome>>,
    pub(crate) child: Option<Arc<ChildEnd>>,
}

impl StepContext {
    /// The service of this type.
    ///
    /// # Errors
    /// [`ServiceMissing`]. Steps that declare what they [need](crate::StepBuilder::needs) have it found when the host starts.
    pub fn service<T: Send + Sync + 'static>(&self) -> Result<&T, ServiceMissing> {
        self.burst.services.get()
    }

    /// The same in each run of this piece of work, and of no other: over retries, crashes and nodes; different for each round of a
    /// loop and each item of a for-each. Hand it to services that can tell a repeated request.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        self.key.get_or_init(|| format!("{}/{}", self.burst.instance, self.pointer))
    }

    pub(crate) fn fingerprint_of(&self, definition: &str, version: u32) -> Option<Arc<str>> {
        self.burst.known.get(&(definition.into(), version)).cloned()
    }

    /// The instance.
    #[must_use]
    pub fn instance(&self) -> &InstanceId {
        &self.burst.instance
    }

    /// The step's name.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }

    /// Which try this is, from 1. A run that was cut off by a crash is not counted.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The fencing token of the instance's lock, where the lock service has one.
    #[must_use]
    pub fn fencing_token(&self) -> Option<u64> {
        self.burst.fencing
    }

    /// The transaction in which this step's checkpoint will be written, to write in it too: both are stored, or neither. Only in
    /// [transactional](crate::StepBuilder::transactional) steps; a clone of the context has none, so that it cannot outlive the body.
    ///
    /// # Errors
    /// When the step is not transactional.
    pub async fn transaction(&self) -> StepResult<TransactionGuard<'_>> {
        let not = || StepError::permanent(format!("step `{}` is not transactional; say so with `.transactional()`", self.step));
        let transaction = self.transaction.as_ref().ok_or_else(not)?;
        Ok(TransactionGuard(transaction.lock().await))
    }

    /// Publishes an event together with this step's checkpoint: once, when the step is done; not when it fails or runs again.
    ///
    /// # Errors
    /// A bad name or key, or data that cannot be written as JSON or are too large.
    pub fn publish_event(&self, event: &str, key: &str, data: impl Serialize) -> StepResult<EventId> {
        name::check("event name", event).map_err(StepError::permanent)?;
        name::check("event key", key).map_err(StepError::permanent)?;
        let data = Encoded::of(&data)?;
        let (bytes, limit) = (data.as_str().len(), self.burst.event_limit);
        if bytes > limit || !limits::json_depth_is_allowed(data.as_str()) {
            return Err(StepError::permanent(format!(
                "the data of event `{event}` have {bytes} bytes of JSON, the limit is {limit}"
            )));
        }
        let event = NewEvent::new(event, key).with_data(data);
        let id = event.id.clone();
        self.outbox().events.push(event);
        Ok(id)
    }

    /// Starts a workflow together with this step's checkpoint: once, when the step is done; not when it fails or runs again. With a business
    /// key that another instance of the workflow has, nothing is started. It is not waited for; see
    /// [`sub_workflow`](crate::WorkflowBuilder::sub_workflow).
    ///
    /// # Errors
    /// A workflow that is not registered on this host, a bad key, or data that cannot be written as JSON.
    pub fn start_workflow<W: crate::Workflow>(&self, data: &W::Data, business_key: Option<&str>) -> StepResult<InstanceId> {
        let fingerprint = self
            .fingerprint_of(W::ID, W::VERSION)
            .ok_or_else(|| StepError::from(format!("workflow `{}` version {} is not registered here", W::ID, W::VERSION)))?;
        let data = Encoded::of(data)?;
        let (bytes, limit) = (data.as_str().len(), self.burst.data_limit);
        if bytes > limit || !limits::json_depth_is_allowed(data.as_str()) {
            let error = format!(
                "the data for workflow `{}` have {bytes} bytes of JSON; the limits are {limit} and {} levels",
                W::ID,
                limits::JSON_DEPTH
            );
            return Err(StepError::permanent(error));
        }
        let mut instance = NewInstance::new(W::ID, W::VERSION, fingerprint, data);
        if let Some(key) = business_key {
            name::check("business key", key).map_err(StepError::permanent)?;
            instance = instance.with_business_key(key);
        }
        let id = instance.id.clone();
        self.outbox().instances.push(instance);
        Ok(id)
    }

    pub(crate) fn outbox(&self) -> std::sync::MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancelled when the body should end early: the step was [cancelled](crate::StepBuilder::cancel_when), another branch was
    /// [first](crate::WorkflowBuilder::first_of), the lock was lost, the instance was terminated, or the host stops and the grace
    /// period is over. The body's future is dropped a little later.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        self.own_cancellation.as_ref().unwrap_or(&self.burst.cancellation)
    }

    /// What an earlier run of this body kept; `None` in the first.
    ///
    /// # Errors
    /// When it cannot be read as a `T`.
    pub fn state<T: DeserializeOwned>(&self) -> StepResult<Option<T>> {
        self.kept.state.as_deref().map(read).transpose()
    }

    /// The data of the event that this body waited for; `None` before it waited.
    ///
    /// # Errors
    /// When it cannot be read as a `T`.
    pub fn event<T: DeserializeOwned>(&self) -> StepResult<Option<T>> {
        self.kept.event.as_deref().map(read).transpose()
    }

    /// The result of the activity that this body waited for; `None` before it waited.
    #[must_use]
    pub fn activity(&self) -> Option<&ActivityOutcome> {
        self.kept.activity.as_deref()
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> StepResult<T> {
    T::deserialize(value).map_err(StepError::permanent)
}

/// An asynchronous closure or function as a step: `async |data, cx| Ok(call(data).await?)`. Implemented for all that fit.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a step: its future must be `Send`",
    note = "write `async |data, cx| Ok(call(data).await?)`; captured values must be `Clone`"
)]
pub trait StepFn<'a, S: Scope, R> {
    /// The future of a run.
    type Future: Future<Output = StepResult<R>> + Send + 'a;
    #[doc(hidden)]
    fn call(self, view: S::View<'a>, cx: &'a StepContext) -> Self::Future;
}

impl<'a, S: Scope, R, F, Fut> StepFn<'a, S, R> for F
where
    F: FnOnce(S::View<'a>, &'a StepContext) -> Fut,
    Fut: Future<Output = StepResult<R>> + Send + 'a,
{
    type Future = Fut;

    fn call(self, view: S::View<'a>, cx: &'a StepContext) -> Fut {
        self(view, cx)
    }
}
