//! The host: what an application starts, calls and stops.

mod builder;
mod ephemeral;
mod error;
mod handle;
mod orphans;
mod run;
mod start;

pub use builder::WorkflowHostBuilder;
pub use error::HostError;
pub use handle::{Completion, InstanceHandle, WorkflowHandle};
pub use orphans::{Orphan, orphans};
pub use run::Run;
pub use start::Start;

use crate::{
    builder::Workflow,
    node::{HealthReport, Node, Registered},
};
use latchwork_core::{
    hub::LifeCycleSubscription,
    limits,
    lock::DistributedLockProvider,
    name,
    queue::QueueProvider,
    store::{
        ActivityClaim, ActivityOutcome, ActivityToken, Encoded, EventId, ExclusiveClaim, InstanceId, InstanceQuery,
        InstanceSummary, NewEvent, Page, PersistenceProvider, PurgeReport, PurgeRequest, StoreStatistics, SubmitOutcome,
    },
};
use serde::Serialize;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A running node. Cheap to clone; all clones are the same node. Stop it with [`stop`](Self::stop): dropping the last clone takes no
/// more work, and leaves what runs to the other nodes.
#[doc(alias = "IWorkflowHost")]
#[derive(Clone)]
pub struct WorkflowHost {
    node: Arc<Node>,
    life: Arc<Life>,
}

struct Life {
    claim: Mutex<Option<Box<dyn ExclusiveClaim>>>,
    _stops: [DropGuard; 2],
}

impl fmt::Debug for WorkflowHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowHost")
            .field("node", &self.node.name)
            .field("active", &self.node.active.len())
            .finish_non_exhaustive()
    }
}

/// What [`WorkflowHost::stop`] could not end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// Instances whose bodies did not end, with their steps. Their locks stay until the process ends.
    pub unfinished: Vec<(InstanceId, Vec<Arc<str>>)>,
}

impl WorkflowHost {
    /// Describes a host.
    pub fn builder() -> WorkflowHostBuilder {
        WorkflowHostBuilder::default()
    }

    fn new(node: Arc<Node>, claim: Option<Box<dyn ExclusiveClaim>>) -> Self {
        let stops = [&node.stopping, &node.grace_is_over].map(|token: &CancellationToken| token.clone().drop_guard());
        Self { node, life: Arc::new(Life { claim: Mutex::new(claim), _stops: stops }) }
    }

    /// Starts an instance of a workflow: `host.start_workflow::<OrderWorkflow>(order).business_key("A-1001").await?`.
    #[doc(alias = "StartWorkflow")]
    pub fn start_workflow<W: Workflow>(&self, data: W::Data) -> Start<'_, W> {
        Start::new(self, data)
    }

    /// Runs a workflow on the caller's task, and resolves with its data at its end: `host.run_workflow::<Quote>(data).await?`. Bodies run on
    /// the caller's task as long as the instance has something to do; while it sleeps or waits it is in the background as any other. When
    /// the future is dropped, the instance goes on there.
    ///
    /// [Without persistence](Run::without_persistence) nothing is stored, and all of it is on the caller's task.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # async fn quote<Quote: Workflow<Data = u32>>(host: &WorkflowHost) -> Result<u32, HostError> {
    /// let price = host.run_workflow::<Quote>(7).without_persistence().timeout(std::time::Duration::from_secs(5)).await?;
    /// # Ok(price)
    /// # }
    /// ```
    pub fn run_workflow<W: Workflow>(&self, data: W::Data) -> Run<'_, W> {
        Run::new(Start::new(self, data))
    }

    /// An instance by its id, of this node or another. Nothing is looked up yet.
    pub fn instance(&self, id: InstanceId) -> InstanceHandle {
        InstanceHandle::new(self.clone(), id)
    }

    /// An instance of this workflow by its id. Nothing is looked up yet, so that it is of this workflow is the caller's word.
    pub fn workflow_instance<W: Workflow>(&self, id: InstanceId) -> WorkflowHandle<W> {
        WorkflowHandle::new(self.instance(id))
    }

    /// The instance of this workflow with this business key, if there is one.
    ///
    /// # Errors
    /// [`HostError`] of the store.
    pub async fn find_by_key<W: Workflow>(&self, business_key: &str) -> Result<Option<WorkflowHandle<W>>, HostError> {
        name::check("business key", business_key)?;
        let found = self.node.store.find_by_key(W::ID, business_key).await?;
        Ok(found.map(|id| WorkflowHandle::new(self.instance(id))))
    }

    /// A page of instances.
    ///
    /// # Errors
    /// [`HostError`] of the store.
    pub async fn find(&self, query: &InstanceQuery) -> Result<Page<InstanceSummary>, HostError> {
        Ok(self.node.store.find(query).await?)
    }

    /// How much is in the store.
    ///
    /// # Errors
    /// [`HostError`] of the store.
    pub async fn statistics(&self) -> Result<StoreStatistics, HostError> {
        Ok(self.node.store.statistics().await?)
    }

    /// Deletes what is older than the request says, in one batch; [`PurgeReport::more`] tells whether another call would find more. For a
    /// deletion by hand, beside or instead of the host's own [retention](WorkflowHostBuilder::retention).
    ///
    /// # Errors
    /// [`HostError`] of the store; the call can be repeated as it is.
    #[doc(alias = "PurgeWorkflows")]
    pub async fn purge(&self, request: &PurgeRequest) -> Result<PurgeReport, HostError> {
        let report = self.node.store.purge(request).await?;
        crate::node::count_purged(&report);
        Ok(report)
    }

    /// Publishes an event now. When this returns, the event is stored, and reaches every wait that matches it, now or later.
    ///
    /// # Errors
    /// [`HostError`]: a bad name or key, data that is too large, or the store.
    #[doc(alias = "PublishEvent")]
    pub async fn publish_event(&self, event: &str, key: &str, data: impl Serialize + Send) -> Result<EventId, HostError> {
        let event = self.new_event(event, key, &data)?;
        self.publish(event).await
    }

    /// An event to be given to [`publish`](Self::publish), for example with a time or an id of its own.
    ///
    /// # Errors
    /// [`HostError`]: a bad name or key, or data that is too large or cannot be written as JSON.
    pub fn new_event(&self, event: &str, key: &str, data: &(impl Serialize + ?Sized)) -> Result<NewEvent, HostError> {
        let what = || format!("data of event `{}`", limits::cut(event, 64));
        let data = Encoded::of(data).map_err(|error| HostError::data(what(), error))?;
        let event = NewEvent::new(event, key).with_data(data);
        self.check_event(&event)?;
        Ok(event)
    }

    /// An event may have been made by hand, so what it is held to is checked wherever one comes in.
    fn check_event(&self, event: &NewEvent) -> Result<(), HostError> {
        name::check("event name", &event.name)?;
        name::check("event key", &event.key)?;
        let Some(data) = &event.data else { return Ok(()) };
        self.check_size(|| format!("data of event `{}`", event.name), data)
    }

    /// What comes from outside is held to the limit of events.
    fn check_size(&self, what: impl Fn() -> String, data: &Encoded) -> Result<(), HostError> {
        let (bytes, limit) = (data.as_str().len(), self.node.settings.event_limit);
        if bytes > limit {
            return Err(HostError::TooLarge { what: what(), bytes, limit });
        }
        if !limits::json_depth_is_allowed(data.as_str()) {
            return Err(HostError::data(what(), format!("it nests deeper than {} levels", limits::JSON_DEPTH)));
        }
        Ok(())
    }

    /// Publishes an event. Publishing the same id again changes nothing.
    ///
    /// # Errors
    /// [`HostError`]: a bad name or key, data that is too large, or the store.
    pub async fn publish(&self, event: NewEvent) -> Result<EventId, HostError> {
        if !self.node.settings.publish_events {
            return Err(HostError::SwitchedOff { action: "publish events", setting: "publish_events" });
        }
        self.check_event(&event)?;
        let id = event.id.clone();
        let outcome = self.node.store.publish(std::slice::from_ref(&event)).await?;
        metrics::counter!("latchwork.events.published").increment(1);
        self.node.enqueue(&outcome.wake).await;
        Ok(id)
    }

    /// Hands out the oldest open activity of one of these names, for `lease`. `None` when there is none.
    ///
    /// # Errors
    /// [`HostError`] of the store.
    #[doc(alias = "GetPendingActivity")]
    pub async fn claim_activity(
        &self,
        names: &[&str],
        worker: &str,
        lease: Duration,
    ) -> Result<Option<ActivityClaim>, HostError> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        Ok(self.node.store.claim_activity(&names, worker, lease).await?)
    }

    /// A worker's result. Refused when the token has expired or was used.
    ///
    /// # Errors
    /// [`HostError::TooLarge`] for a result beyond the limit of events, or [`HostError`] of the store.
    #[doc(alias = "SubmitActivitySuccess")]
    #[doc(alias = "SubmitActivityFailure")]
    pub async fn submit_activity(&self, token: &ActivityToken, outcome: ActivityOutcome) -> Result<SubmitOutcome, HostError> {
        let (ActivityOutcome::Success(result) | ActivityOutcome::Failure(result)) = &outcome;
        let what = || "result of an activity".to_owned();
        let result = Encoded::of(result).map_err(|error| HostError::data(what(), error))?;
        self.check_size(what, &result)?;
        let submitted = self.node.store.submit_activity(token, outcome).await?;
        if let SubmitOutcome::Accepted(item) = &submitted {
            self.node.enqueue(std::slice::from_ref(item)).await;
        }
        Ok(submitted)
    }

    /// Gives a claimed activity back at once; `false` when the token is not its current one.
    ///
    /// # Errors
    /// [`HostError`] of the store.
    #[doc(alias = "ReleaseActivityToken")]
    pub async fn release_activity(&self, token: &ActivityToken) -> Result<bool, HostError> {
        Ok(self.node.store.release_activity(token).await?)
    }

    /// Life-cycle events from now on.
    pub fn subscribe(&self) -> LifeCycleSubscription {
        self.node.hub.subscribe()
    }

    /// The state of the services, as far as this node's work came upon it. Costs nothing: no service is asked.
    #[must_use]
    pub fn health(&self) -> HealthReport {
        self.node.health_report()
    }

    /// The state of the services and of the work that waits: each service is asked, and has 5 seconds to answer. One that does not answer, or
    /// fails, is told in the report.
    pub async fn health_report(&self) -> HealthReport {
        self.node.full_health_report().await
    }

    /// The workflows that are registered here, by id and version.
    #[must_use]
    pub fn workflows(&self) -> Arc<[(Arc<str>, u32)]> {
        self.node.registry.known()
    }

    /// The name of this node.
    #[must_use]
    pub fn node_id(&self) -> &str {
        &self.node.name
    }

    /// The lock provider, for locks of the application's own.
    #[must_use]
    pub fn locks(&self) -> &Arc<dyn DistributedLockProvider> {
        &self.node.lock
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &Arc<dyn QueueProvider> {
        &self.node.queue
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn PersistenceProvider> {
        &self.node.store
    }

    /// Takes no more work, lets running bodies finish within the grace period, then cancels them; checkpoints, releases the locks, and
    /// stops the providers. Bounded: about the grace period and a few seconds, both by the host's clock. What did not end is in the
    /// report, and its lock stays until the process ends. Calling it again is harmless.
    ///
    /// # Errors
    /// The first [`HostError::Stop`] of a provider; the others are stopped all the same.
    pub async fn stop(&self) -> Result<StopReport, HostError> {
        let node = &self.node;
        node.stopping.cancel();
        node.tasks.close();
        // The committer ends when nobody can hand it anything more, so bursts are counted, not tasks.
        let mut clean = node.bursts_end(node.settings.stop_grace).await;
        node.grace_is_over.cancel();
        if !clean {
            clean = node.bursts_end(Duration::from_secs(3)).await;
        }
        let unfinished: Vec<_> = node.active.running().into_iter().filter(|(_, steps)| !steps.is_empty()).collect();
        for (instance, steps) in &unfinished {
            tracing::error!(%instance, ?steps, "a body did not end; its instance's lock stays until the process ends");
        }
        node.committer.close();
        if clean {
            node.within(Duration::from_secs(1), node.tasks.wait()).await;
        }
        let grace = Duration::from_secs(5);
        let mut result = Ok(StopReport { unfinished: unfinished.clone() });
        let mut note = |role, stopped: Result<(), latchwork_core::BoxError>| {
            if let Err(source) = stopped
                && result.is_ok()
            {
                result = Err(HostError::Stop { role, source });
            }
        };
        note("queue", node.queue.stop(grace).await.map_err(Into::into));
        // Locks of bodies that will not end are not given away.
        if unfinished.is_empty() {
            note("lock provider", node.lock.stop(grace).await.map_err(Into::into));
        }
        note("event hub", node.hub.stop(grace).await);
        note("store", node.store.stop(grace).await.map_err(Into::into));
        if unfinished.is_empty() {
            self.life.claim.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        result
    }

    fn registered(&self, definition: &str, version: Option<u32>) -> Result<&Registered, HostError> {
        let registry = &self.node.registry;
        let found = match version {
            Some(version) => registry.get(definition, version),
            None => registry.latest(definition),
        };
        let registered = found.ok_or_else(|| HostError::UnknownWorkflow { definition: definition.to_owned(), version })?;
        match &registered.conflict {
            None => Ok(registered),
            Some(difference) => Err(HostError::ShapeChanged {
                definition: definition.to_owned(),
                version: registered.definition.version,
                difference: difference.clone(),
            }),
        }
    }
}
