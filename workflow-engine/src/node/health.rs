//! How a node tells where it stands. All its metrics are listed in `docs/architecture.md`.

use super::Node;
use latchwork_core::{
    queue::{QueueDepth, QueueKind},
    store::{InstanceQuery, PurgeReport, WorkflowStatus},
};
use std::{
    error::Error,
    fmt::Display,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::error::Elapsed;

/// Whether one of the services that a host depends on works, as far as this node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceHealth {
    /// What went wrong at the last use; `None` when it worked.
    pub failure: Option<String>,
    /// Failures in a row.
    pub failures: u64,
}

impl ServiceHealth {
    /// Whether the last use worked.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.failure.is_none()
    }
}

/// What the background sweep of this node came to; see [`Retention`](latchwork_core::retention::Retention).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionHealth {
    /// Time since the last complete sweep of this node; `None` before the first, or while others sweep.
    pub since_sweep: Option<Duration>,
    /// What that sweep deleted.
    pub deleted: PurgeReport,
    /// Why the last try failed; `None` when it did not.
    pub failure: Option<String>,
}

/// The poller of this node, which finds what the queue lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollerHealth {
    /// Whether this node polls; see [`run_poller`](latchwork_core::options::WorkflowOptions::run_poller).
    pub polls: bool,
    /// Time since the last complete poll of this node; `None` before the first.
    pub since_poll: Option<Duration>,
    /// Time since another node was last seen polling in the place of this one; `None` when none was.
    pub since_other: Option<Duration>,
    /// Time since anybody polled, as far as this node saw, or since this node began to. By a clock that never jumps; zero when it does not poll.
    pub lag: Duration,
    /// How long the oldest instance was overdue at the last poll of this node, by the store's clock; zero when none was. What runs on this node
    /// does not count; what another node runs stands in the store as due as long as it runs, and does.
    pub oldest_overdue: Duration,
    /// Why the last poll failed; `None` when it did not.
    pub failure: Option<String>,
}

/// The state of a host's services, and of the work that waits for them. With the lock service down nothing starts, and work resumes by
/// itself when it is back.
///
/// [`WorkflowHost::health`](crate::WorkflowHost::health) tells what this node came upon last and costs nothing;
/// [`WorkflowHost::health_report`](crate::WorkflowHost::health_report) asks each service first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthReport {
    /// The lock service.
    pub lock: ServiceHealth,
    /// The queue.
    pub queue: ServiceHealth,
    /// The store.
    pub store: ServiceHealth,
    /// Bursts that run on this node.
    pub active: usize,
    /// How full the queue is, how long its oldest hint waits, and how many it dropped: as of now in a full report, else as of the last look,
    /// once in a poll interval. `None` when it does not tell.
    pub queue_depth: Option<QueueDepth>,
    /// The poller.
    pub poller: PollerHealth,
    /// Open instances whose bursts were cut short so often in a row that they are held back, at most 1,000 are counted. `None` unless the
    /// store was asked, in a full report.
    pub stuck: Option<u64>,
    /// The deletion of what is over.
    pub retention: RetentionHealth,
    /// The node's poll interval: what lags are measured by.
    pub poll_interval: Duration,
}

impl HealthReport {
    /// Whether all services work: what a readiness probe asks. Work may lag all the same; see [`concerns`](Self::concerns).
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.lock.is_healthy() && self.queue.is_healthy() && self.store.is_healthy()
    }

    /// What somebody should look into, a sentence each; none when all is well.
    #[must_use]
    pub fn concerns(&self) -> Vec<String> {
        let mut concerns = Vec::new();
        for (service, health) in [("lock service", &self.lock), ("queue", &self.queue), ("store", &self.store)] {
            if let Some(failure) = &health.failure {
                concerns.push(format!("the {service} fails ({} times in a row): {failure}", health.failures));
            }
        }
        if let Some(depth) = &self.queue_depth {
            if let Some(oldest) = depth.oldest.filter(|oldest| *oldest > self.poll_interval.saturating_mul(2)) {
                concerns.push(format!(
                    "the queue backs up: {} hints wait, the oldest of them for {} s",
                    depth.waiting,
                    oldest.as_secs()
                ));
            }
            if let Some(capacity) = depth.capacity.filter(|capacity| depth.waiting.saturating_add(depth.in_hand) >= *capacity) {
                concerns.push(format!("the queue is full: it holds {capacity} hints, and has dropped {} so far", depth.dropped));
            }
        }
        if self.poller.polls && self.poller.lag > self.poll_interval.saturating_mul(3) {
            let failure = self.poller.failure.as_deref().map(|failure| format!(": {failure}")).unwrap_or_default();
            concerns.push(format!("nobody has polled for {} s{failure}", self.poller.lag.as_secs()));
        }
        if let Some(stuck) = self.stuck.filter(|stuck| *stuck > 0) {
            let (at_least, is) =
                (if stuck >= STUCK_COUNTED { "at least " } else { "" }, if stuck == 1 { "instance is" } else { "instances are" });
            concerns.push(format!("{at_least}{stuck} {is} held back because bursts were cut short again and again"));
        }
        if let Some(failure) = &self.retention.failure {
            concerns.push(format!("what is over is not deleted: {failure}"));
        }
        concerns
    }
}

/// The most stuck instances that a report counts.
pub(crate) const STUCK_COUNTED: u64 = 1_000;
/// Bursts cut short in a row from which on an instance is held back.
const STUCK_FAULTS: u32 = 3;
/// How long a service has to answer a report.
const ANSWER: Duration = Duration::from_secs(5);

impl Node {
    /// What this node came upon last.
    pub(crate) fn health_report(&self) -> HealthReport {
        let (health, now) = (&self.health, self.clock.monotonic());
        HealthReport {
            lock: health.lock.report(),
            queue: health.queue.report(),
            store: health.store.report(),
            active: self.active.len(),
            queue_depth: *health.depth(),
            poller: health.poller.report(now),
            stuck: None,
            retention: health.retention.report(now),
            poll_interval: self.settings.poll_interval,
        }
    }

    /// Asks each service.
    pub(crate) async fn full_health_report(&self) -> HealthReport {
        // In real time: a test's clock says nothing of a service that does not answer.
        let (lock, depth, now, stuck) = tokio::join!(
            tokio::time::timeout(ANSWER, self.lock.check()),
            tokio::time::timeout(ANSWER, self.queue.depth(QueueKind::Workflow)),
            tokio::time::timeout(ANSWER, self.store.now()),
            tokio::time::timeout(ANSWER, self.count_stuck()),
        );
        self.health.lock.checked(lock);
        self.health.store.checked(now);
        *self.health.depth() = depth.as_ref().ok().and_then(|depth| depth.as_ref().ok()).copied();
        self.health.queue.checked(depth);
        let mut report = self.health_report();
        report.stuck = stuck.ok().flatten();
        report
    }

    async fn count_stuck(&self) -> Option<u64> {
        let open = [WorkflowStatus::Runnable, WorkflowStatus::Suspended];
        let limit = usize::try_from(STUCK_COUNTED).unwrap_or(usize::MAX);
        let query = InstanceQuery::new().with_status(open).with_faults(STUCK_FAULTS).with_limit(limit);
        Some(self.store.find(&query).await.ok()?.items.len() as u64)
    }

    /// Tells the metrics how the node stands, once in a poll interval.
    pub(super) async fn observe(self: Arc<Self>) {
        loop {
            if let Ok(depth) = self.queue.depth(QueueKind::Workflow).await {
                metrics::gauge!("latchwork.queue.depth").set(depth.waiting as f64);
                metrics::gauge!("latchwork.queue.in_hand").set(depth.in_hand as f64);
                metrics::gauge!("latchwork.queue.oldest_seconds").set(depth.oldest.unwrap_or_default().as_secs_f64());
                metrics::gauge!("latchwork.queue.dropped").set(depth.dropped as f64);
                *self.health.depth() = Some(depth);
            } else {
                *self.health.depth() = None;
            }
            let report = self.health_report();
            metrics::gauge!("latchwork.bursts.active").set(report.active as f64);
            metrics::gauge!("latchwork.poll.lag_seconds").set(report.poller.lag.as_secs_f64());
            for (service, health) in [("lock", &report.lock), ("queue", &report.queue), ("store", &report.store)] {
                metrics::gauge!("latchwork.service.up", "service" => service).set(if health.is_healthy() { 1.0 } else { 0.0 });
            }
            if !self.pause(self.settings.poll_interval).await {
                return;
            }
        }
    }
}

/// The health of the services, as bursts and loops come upon it.
#[derive(Debug, Default)]
pub(crate) struct Health {
    pub(crate) lock: Watched,
    pub(crate) queue: Watched,
    pub(crate) store: Watched,
    pub(crate) retention: WatchedRetention,
    pub(crate) poller: WatchedPoller,
    /// As of the last look.
    depth: Mutex<Option<QueueDepth>>,
}

impl Health {
    fn depth(&self) -> MutexGuard<'_, Option<QueueDepth>> {
        self.depth.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(crate) struct WatchedPoller(Mutex<Polls>);

/// Times are those of the monotonic clock.
#[derive(Debug, Default)]
struct Polls {
    /// `None`: this node does not poll.
    began: Option<Duration>,
    complete: Option<Duration>,
    other: Option<Duration>,
    oldest_overdue: Duration,
    failure: Option<String>,
}

impl WatchedPoller {
    fn polls(&self) -> MutexGuard<'_, Polls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begins(&self, now: Duration) {
        self.polls().began.get_or_insert(now);
    }

    pub(super) fn complete(&self, now: Duration) {
        let mut polls = self.polls();
        (polls.complete, polls.failure) = (Some(now), None);
    }

    /// Another node is at it.
    pub(super) fn left_to_other(&self, now: Duration) {
        let mut polls = self.polls();
        (polls.other, polls.failure) = (Some(now), None);
    }

    pub(super) fn fails(&self, error: &dyn Error) {
        self.polls().failure = Some(error.to_string());
    }

    pub(super) fn overdue(&self, oldest: Duration) {
        self.polls().oldest_overdue = oldest;
    }

    fn report(&self, now: Duration) -> PollerHealth {
        let polls = self.polls();
        let since = |at: Option<Duration>| at.map(|at| now.saturating_sub(at));
        let last = polls.began.max(polls.complete).max(polls.other);
        PollerHealth {
            polls: polls.began.is_some(),
            since_poll: since(polls.complete),
            since_other: since(polls.other),
            lag: since(last).unwrap_or_default(),
            oldest_overdue: polls.oldest_overdue,
            failure: polls.failure.clone(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct WatchedRetention(Mutex<Swept>);

#[derive(Debug, Default)]
struct Swept {
    /// By the monotonic clock.
    at: Option<Duration>,
    deleted: PurgeReport,
    failure: Option<String>,
}

impl WatchedRetention {
    pub(super) fn swept(&self, now: Duration, deleted: PurgeReport) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Swept { at: Some(now), deleted, failure: None };
    }

    pub(super) fn fails(&self, error: &dyn Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failure = Some(error.to_string());
    }

    pub(crate) fn report(&self, now: Duration) -> RetentionHealth {
        let swept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        RetentionHealth {
            since_sweep: swept.at.map(|at| now.saturating_sub(at)),
            deleted: swept.deleted,
            failure: swept.failure.clone(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Watched {
    failing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    health: ServiceHealth,
    /// The failure is that of a check, not of a use: it is over when a check works.
    of_check: bool,
}

impl Watched {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn works(&self) {
        // Checked first without the lock: this is on every burst's way.
        if self.failing.swap(false, Ordering::Relaxed) {
            *self.state() = State::default();
        }
    }

    pub(crate) fn fails(&self, error: &impl Display) {
        self.note(error, false);
    }

    fn note(&self, error: &impl Display, of_check: bool) {
        let mut state = self.state();
        let is_first = !self.failing.swap(true, Ordering::Relaxed);
        // A use that failed is not made good by a check.
        state.of_check = of_check && (is_first || state.of_check);
        state.health.failure = Some(error.to_string());
        state.health.failures += 1;
    }

    /// What a report's check came to.
    fn checked<T, E: Display>(&self, checked: Result<Result<T, E>, Elapsed>) {
        match checked {
            Ok(Ok(_)) if self.state().of_check => self.works(),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => self.note(&error, true),
            Err(_) => self.note(&format!("it did not answer within {} s", ANSWER.as_secs()), true),
        }
    }

    pub(crate) fn report(&self) -> ServiceHealth {
        self.state().health.clone()
    }
}
