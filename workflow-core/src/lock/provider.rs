use super::{KeyLimit, LockError, LockGuard, LockKey};
use crate::{Scope, name::Namespace};
use async_trait::async_trait;
use std::{fmt, time::Duration};

/// How long an acquire may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Wait {
    /// Not at all: one try.
    #[default]
    No,
    /// At most so long.
    UpTo(Duration),
    /// Until it is granted.
    Forever,
}

/// Whether others may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum LockMode {
    /// One holder.
    #[default]
    Exclusive,
    /// Any number of shared holders, and no exclusive one.
    Shared,
}

/// What to acquire, and how.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is given to `acquire`"]
#[non_exhaustive]
pub struct LockRequest {
    /// The key.
    pub key: LockKey,
    /// How long to wait for it.
    pub wait: Wait,
    /// Exclusive or shared.
    pub mode: LockMode,
}

impl LockRequest {
    /// One try for the exclusive lock on `key`.
    pub fn new(key: LockKey) -> Self {
        Self { key, wait: Wait::No, mode: LockMode::Exclusive }
    }

    /// Waits so long.
    pub fn with_wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Asks for this mode.
    pub fn with_mode(mut self, mode: LockMode) -> Self {
        self.mode = mode;
        self
    }
}

/// How a holder learns that its grant ended early, and what ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossDetection {
    /// The grant lives as long as the process; only `stop` ends it.
    Process,
    /// The grant lives as long as a session with the server, which is watched.
    Session,
    /// The grant is a lease that is renewed; it ends by itself after this time without renewal.
    Lease(Duration),
}

/// What a lock provider can do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockCapabilities {
    /// How far its locks reach.
    pub scope: Scope,
    /// How a loss is noticed.
    pub loss: LossDetection,
    /// Guards carry fencing tokens.
    pub fencing: bool,
    /// [`LockMode::Shared`] is there.
    pub shared: bool,
    /// The server itself queues waiters across processes; otherwise waiting is retrying, with jitter.
    pub server_side_wait: bool,
    /// Longest name the backend knows; longer keys are fitted.
    pub longest_key: Option<KeyLimit>,
    /// Names the lock service as all its users see it, without secrets, for example `sqlserver:db1/orders`. Nodes whose
    /// domains differ do not exclude each other, so a store remembers it and a host with another one refuses to start.
    pub domain: String,
}

impl LockCapabilities {
    /// Capabilities of the least kind for this scope, loss and domain.
    pub fn new(scope: Scope, loss: LossDetection, domain: impl Into<String>) -> Self {
        Self { scope, loss, fencing: false, shared: false, server_side_wait: false, longest_key: None, domain: domain.into() }
    }

    /// With fencing tokens.
    #[must_use]
    pub fn with_fencing(mut self) -> Self {
        self.fencing = true;
        self
    }

    /// With shared mode.
    #[must_use]
    pub fn with_shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// With waiters queued by the server.
    #[must_use]
    pub fn with_server_side_wait(mut self) -> Self {
        self.server_side_wait = true;
        self
    }

    /// With a limit on names.
    #[must_use]
    pub fn with_longest_key(mut self, limit: KeyLimit) -> Self {
        self.longest_key = Some(limit);
        self
    }
}

/// A lock service: mutual exclusion by key.
///
/// What must hold for every implementation, beside the methods' own rules:
///
/// * Not re-entrant: a second acquire of a held key is contention, also within one process, one task and one session. The
///   only way to hold twice is [`LockGuard::reenter`]. The table of held names is keyed by the name as the backend knows it.
/// * While its clock runs, a holder learns of a loss before the same, unbroken lock server can grant to another.
/// * A guard frees its own grant or nothing: never a newer one of the same key.
/// * Waiters of one process queue in order before the backend sees them.
/// * Nothing that may hold a lock returns to a general pool.
#[doc(alias = "IDistributedLockProvider")]
#[async_trait]
pub trait DistributedLockProvider: fmt::Debug + Send + Sync + 'static {
    /// What this provider can do. Constant over its life.
    fn capabilities(&self) -> LockCapabilities;

    /// The namespace in which [`LockProviderExt`](super::LockProviderExt) makes its keys.
    fn namespace(&self) -> &Namespace;

    /// Acquires a lock. `Ok(None)` is contention (still held by another when the wait ended); `Err` is the infrastructure.
    /// The two are never mixed (I6).
    ///
    /// Dropping the future at any point is safe: a grant that arrives for nobody is freed.
    ///
    /// # Errors
    /// [`LockError`]; [`LockError::is_retryable`] tells whether a later try may succeed.
    async fn acquire(&self, request: LockRequest) -> Result<Option<LockGuard>, LockError>;

    /// One cheap round trip to the service, for health reports.
    ///
    /// # Errors
    /// [`LockError`] when the service does not answer as it should.
    async fn check(&self) -> Result<(), LockError>;

    /// Frees all grants, signals [`Loss::Stopped`](super::Loss::Stopped) on those still guarded, and refuses new requests,
    /// within `grace` (I7). Calling it again is harmless.
    ///
    /// # Errors
    /// [`LockError`] when grants could not be freed in time; they end with their session or lease.
    async fn stop(&self, grace: Duration) -> Result<(), LockError>;
}
