//! What a host runs in the background: everything between the providers and the instances in memory.

mod active;
mod around;
mod burst;
mod committer;
mod completions;
mod consumer;
mod control;
mod health;
mod overflow;
mod poller;
mod registry;
mod retention;
mod time;
mod troubled;
mod wheel;
mod work;

pub(crate) use active::{Active, ActiveMap};
pub(crate) use completions::Completions;
pub(crate) use health::Health;
pub use health::{HealthReport, PollerHealth, RetentionHealth, ServiceHealth};
pub(crate) use overflow::Overflow;
pub(crate) use registry::{Registered, Registry};
pub(crate) use retention::count_purged;

use crate::{
    instance::{Rules, panicked},
    middleware::Middleware,
    services::Services,
};
pub(crate) use committer::Committer;
use futures_util::FutureExt;
use latchwork_core::{
    clock::{Clock, ClockExt},
    hub::{LifeCycleEvent, LifeCycleEventHub},
    lock::{DistributedLockProvider, LockError, LockGuard, LockKey, LockRequest},
    name::Namespace,
    queue::{QueueKind, QueueProvider, WorkItem},
    retention::Retention,
    store::PersistenceProvider,
};
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
pub(crate) use troubled::Troubled;
use wheel::Wheel;

/// Hints that are kept because another node holds the instance; beyond, they go back to the queue.
const KEPT_HINTS: usize = 256;
/// How long bodies have between the firing of their token and the end of their futures, when the instance is not theirs any more.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// The settings that the background needs.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) poll_interval: Duration,
    pub(crate) idle_time: Duration,
    pub(crate) error_retry_interval: Duration,
    pub(crate) max_concurrent_workflows: usize,
    pub(crate) max_concurrent_steps: usize,
    pub(crate) stop_grace: Duration,
    pub(crate) burst_budget: Duration,
    pub(crate) transaction_limit: Duration,
    pub(crate) event_limit: usize,
    pub(crate) data_limit: usize,
    pub(crate) run_workflows: bool,
    pub(crate) publish_events: bool,
    pub(crate) run_poller: bool,
    pub(crate) retention: Retention,
}

/// One node: the providers, the definitions, and the bursts that run here.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) namespace: Namespace,
    pub(crate) cluster: String,
    pub(crate) settings: Settings,
    pub(crate) lock: Arc<dyn DistributedLockProvider>,
    pub(crate) queue: Arc<dyn QueueProvider>,
    pub(crate) store: Arc<dyn PersistenceProvider>,
    pub(crate) hub: Arc<dyn LifeCycleEventHub>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) services: Arc<Services>,
    pub(crate) middleware: Middleware,
    pub(crate) rules: Arc<Rules>,
    pub(crate) health: Health,
    pub(crate) completions: Completions,
    pub(crate) active: ActiveMap,
    pub(crate) wheel: Wheel,
    pub(crate) troubled: Troubled,
    pub(crate) overflow: Overflow,
    pub(crate) committer: Committer,
    /// One for each burst that may run.
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) kept: AtomicUsize,
    /// Fires when the node takes no more work.
    pub(crate) stopping: CancellationToken,
    /// Fires when running bodies have had their time to finish.
    pub(crate) grace_is_over: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Node {
    /// Starts the loops of this node.
    pub(crate) fn start(self: &Arc<Self>) {
        if !self.settings.run_workflows {
            return;
        }
        self.keep_up("queue", Self::consume_queue);
        self.keep_up("wheel", Self::consume_wheel);
        self.keep_up("inboxes", Self::watch_inboxes);
        self.keep_up("gauges", Self::observe);
        if self.settings.run_poller {
            self.keep_up("poller", Self::poll);
        }
        if self.settings.retention.interval.is_some() {
            self.keep_up("retention", Self::sweep);
        }
    }

    /// Runs a loop until the node stops: also when something in it panics, a provider for example (I8).
    fn keep_up<F: Future<Output = ()> + Send + 'static>(self: &Arc<Self>, name: &'static str, run: fn(Arc<Self>) -> F) {
        let node = self.clone();
        self.tasks.spawn(async move {
            while let Err(panic) = AssertUnwindSafe(run(node.clone())).catch_unwind().await {
                tracing::error!(name, panic = panicked(&*panic).to_string(), "a background loop panicked; it is begun again");
                metrics::counter!("latchwork.loop.panics", "loop" => name).increment(1);
                if !node.pause(node.settings.error_retry_interval).await {
                    return;
                }
            }
        });
    }

    /// Waits until no burst is left, at most so long; whether none is.
    pub(crate) async fn bursts_end(&self, span: Duration) -> bool {
        let all_end = async {
            while self.active.len() > 0 {
                self.active.changed().await;
            }
        };
        self.within(span, all_end).await
    }

    /// Awaits this, at most so long by the node's clock; whether it came to pass.
    pub(crate) async fn within(&self, span: Duration, future: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = future => true,
            () = self.clock.sleep(span) => false,
        }
    }

    /// Puts hints in the queue. A failure is logged and counted: the poller makes up for it (I5).
    pub(crate) async fn enqueue(&self, items: &[WorkItem]) {
        if items.is_empty() {
            return;
        }
        // A queue may keep a hint back while its like is in hand, and here it can be told without.
        for item in items {
            self.active.wake(&item.instance);
        }
        match self.queue.enqueue(QueueKind::Workflow, items).await {
            Ok(()) => self.health.queue.works(),
            Err(error) => {
                tracing::warn!(%error, hints = items.len(), "hints were not queued; the poller will find the instances");
                metrics::counter!("latchwork.queue.failures").increment(1);
                self.health.queue.fails(&error);
            }
        }
    }

    /// Tells whoever listens. Best effort.
    pub(crate) async fn tell(&self, events: Vec<LifeCycleEvent>) {
        if !events.is_empty()
            && let Err(error) = self.hub.publish(&events).await
        {
            tracing::debug!(%error, "life-cycle events were not published");
            metrics::counter!("latchwork.hub.failures").increment(1);
        }
    }

    /// The lock of a job that the nodes of a cluster do in turns; `None` when another one is at it.
    async fn turn(&self, key: &LockKey) -> Result<Option<LockGuard>, LockError> {
        let guard = self.lock.acquire(LockRequest::new(key.clone())).await.inspect_err(|error| self.health.lock.fails(error))?;
        self.health.lock.works();
        Ok(guard)
    }

    /// Sleeps; `false` when the node stops first.
    async fn pause(&self, span: Duration) -> bool {
        self.stopping.run_until_cancelled(self.clock.sleep(span)).await.is_some()
    }
}

/// Pauses that double after each failure in a row.
#[derive(Debug)]
struct BackOff {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl BackOff {
    fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, first, longest: longest.max(first) }
    }

    fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }

    fn reset(&mut self) {
        self.next = self.first;
    }
}
