use super::{
    HostError, Start, WorkflowHost,
    ephemeral::{Alone, Ephemeral, NoQueue},
};
use crate::{
    builder::Workflow,
    node::{Active, Committer, Node},
};
use latchwork_core::{
    clock::{ClockExt, between},
    store::{NewInstance, WorkflowStatus},
};
use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// A request to run a workflow on the caller's task, from [`WorkflowHost::run_workflow`]; await it.
#[must_use = "nothing runs until the request is awaited"]
#[derive(Debug)]
pub struct Run<'h, W: Workflow> {
    start: Start<'h, W>,
    timeout: Option<Duration>,
    persistent: bool,
}

impl<'h, W: Workflow> Run<'h, W> {
    pub(super) fn new(start: Start<'h, W>) -> Self {
        Self { start, timeout: None, persistent: true }
    }

    /// As [`Start::business_key`]. When another instance has the key, its end is awaited.
    pub fn business_key(mut self, key: impl Into<String>) -> Self {
        self.start = self.start.business_key(key);
        self
    }

    /// As [`Start::reference`].
    pub fn reference(mut self, reference: impl Into<String>) -> Self {
        self.start = self.start.reference(reference);
        self
    }

    /// Waits no longer than this; [`HostError::TimedOut`] then. A persistent instance goes on in the background; one without
    /// persistence is gone.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Without persistence: nothing is stored, and nothing is left when the future is dropped or the process ends. Timers, retries and sagas
    /// work; what needs others does not: an event never comes, and starting workflows, publishing events and waiting for external workers
    /// fail. For work that is worth nothing without its caller.
    pub fn without_persistence(mut self) -> Self {
        self.persistent = false;
        self
    }

    async fn run(self) -> Result<W::Data, HostError> {
        let Self { start, timeout, persistent } = self;
        if persistent { run_stored(start, timeout).await } else { run_ephemeral(start, timeout).await }
    }
}

impl<'h, W: Workflow> IntoFuture for Run<'h, W> {
    type Output = Result<W::Data, HostError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'h>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

async fn run_stored<W: Workflow>(start: Start<'_, W>, timeout: Option<Duration>) -> Result<W::Data, HostError> {
    let host = start.host.clone();
    let (handle, item) = start.create().await?;
    let completion = match timeout {
        Some(timeout) => handle.completion().timeout(timeout),
        None => handle.completion(),
    };
    let mut done = std::pin::pin!(completion.into_future());
    if let Some(item) = item
        && let Some(active) = host.node.active.begin(&item.instance)
    {
        match host.node.permits.clone().try_acquire_owned() {
            Ok(permit) => {
                let burst = host.node.clone().work(item, None, false, active, permit);
                let here = Here { burst: Some(Box::pin(burst)), host: host.clone() };
                tokio::select! {
                    biased;
                    done = &mut done => return done,
                    () = here => {}
                }
            }
            // Others are at work as much as the node may: this one waits for its turn like them.
            Err(_) => {
                host.node.active.remove(&item.instance, &active);
                host.node.enqueue(std::slice::from_ref(&item)).await;
            }
        }
    }
    done.await
}

/// A burst on the caller's task. When the caller goes away, it goes on in the background: a lock is not given back in the middle of it.
struct Here {
    burst: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    host: WorkflowHost,
}

impl fmt::Debug for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Here")
    }
}

impl Future for Here {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(burst) = &mut self.burst else { return Poll::Ready(()) };
        let polled = burst.as_mut().poll(cx);
        if polled.is_ready() {
            self.burst = None;
        }
        polled
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(burst) = self.burst.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            self.host.node.tasks.spawn_on(burst, &runtime);
        }
    }
}

async fn run_ephemeral<W: Workflow>(start: Start<'_, W>, timeout: Option<Duration>) -> Result<W::Data, HostError> {
    let host = start.host.clone();
    let instance = start.instance().await?;
    let clock = host.node.clock.clone();
    let id = instance.id.clone();
    match timeout {
        None => ephemeral::<W>(&host, instance).await,
        Some(timeout) => tokio::select! {
            biased;
            done = ephemeral::<W>(&host, instance) => done,
            () = clock.sleep(timeout) => Err(HostError::TimedOut { instance: id, status: WorkflowStatus::Runnable, reason: None }),
        },
    }
}

async fn ephemeral<W: Workflow>(host: &WorkflowHost, instance: NewInstance) -> Result<W::Data, HostError> {
    let node = &host.node;
    let item = instance.work_item();
    let store = Arc::new(Ephemeral::new(instance, node.clock.clone()));
    let node = Arc::new(private(node, store.clone()));
    let active = Active::default();
    loop {
        node.burst_alone(&item, &active).await;
        let header = store.header();
        match header.status {
            WorkflowStatus::Complete => {
                let data = crate::decompress(&store.data()).map_err(|error| HostError::data("data of the run", error))?;
                return serde_json::from_str(data.as_str()).map_err(|error| HostError::data("data of the run", error));
            }
            WorkflowStatus::Terminated | WorkflowStatus::Suspended => {
                return Err(HostError::Terminated { instance: header.id, reason: header.reason });
            }
            WorkflowStatus::Runnable => match header.due {
                Some(due) => node.clock.sleep(between(node.clock.now(), due)).await,
                None => {
                    let reason = Some("it waits for an event, which never comes in a run without persistence".to_owned());
                    return Err(HostError::Terminated { instance: header.id, reason });
                }
            },
        }
    }
}

/// A node for one run, with the definitions and services of another.
fn private(node: &Node, store: Arc<Ephemeral>) -> Node {
    let tasks = tokio_util::task::TaskTracker::new();
    Node {
        name: node.name.clone(),
        namespace: node.namespace.clone(),
        cluster: node.cluster.clone(),
        committer: Committer::new(store.clone(), &tasks),
        settings: node.settings.clone(),
        lock: Arc::new(Alone(node.namespace.clone())),
        queue: Arc::new(NoQueue),
        store,
        hub: node.hub.clone(),
        clock: node.clock.clone(),
        registry: node.registry.clone(),
        services: node.services.clone(),
        middleware: node.middleware.clone(),
        rules: node.rules.clone(),
        health: Default::default(),
        completions: Default::default(),
        active: Default::default(),
        wheel: Default::default(),
        troubled: Default::default(),
        overflow: Default::default(),
        permits: node.permits.clone(),
        kept: Default::default(),
        stopping: node.stopping.clone(),
        grace_is_over: node.grace_is_over.clone(),
        tasks,
    }
}
