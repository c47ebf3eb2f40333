use latchwork_core::store::PurgeReport;
use std::{
    fmt::Display,
    sync::{Mutex, PoisonError},
    time::Duration,
};

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

/// The state of a host's services. With the lock service down nothing starts, and work resumes by itself when it is back.
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
    /// The deletion of what is over.
    pub retention: RetentionHealth,
}

impl HealthReport {
    /// Whether all services work.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.lock.is_healthy() && self.queue.is_healthy() && self.store.is_healthy()
    }
}

/// The health of the services, as bursts and loops come upon it.
#[derive(Debug, Default)]
pub(crate) struct Health {
    pub(crate) lock: Watched,
    pub(crate) queue: Watched,
    pub(crate) store: Watched,
    pub(crate) retention: WatchedRetention,
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

    pub(super) fn fails(&self, error: &dyn std::error::Error) {
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
    failing: std::sync::atomic::AtomicBool,
    state: Mutex<ServiceHealth>,
}

impl Watched {
    pub(crate) fn works(&self) {
        // Checked first without the lock: this is on every burst's way.
        if self.failing.swap(false, std::sync::atomic::Ordering::Relaxed) {
            *self.state.lock().unwrap_or_else(PoisonError::into_inner) = ServiceHealth::default();
        }
    }

    pub(crate) fn fails(&self, error: &impl Display) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.failing.store(true, std::sync::atomic::Ordering::Relaxed);
        state.failure = Some(error.to_string());
        state.failures += 1;
    }

    pub(crate) fn report(&self) -> ServiceHealth {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
