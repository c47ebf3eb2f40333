use super::{Delivery, QueueError, QueueKind, WorkItem};
use crate::Scope;
use async_trait::async_trait;
use std::{fmt, time::Duration};

/// When the hint of a dead consumer comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Redelivery {
    /// It is gone with the process; the poller makes up for it.
    Never,
    /// When the consumer's connection is gone.
    Connection,
    /// When a lease of this length has not been renewed.
    Lease(Duration),
}

/// What a queue provider can do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueCapabilities {
    /// How far it reaches.
    pub scope: Scope,
    /// A waiting [`dequeue`](QueueProvider::dequeue) is woken by an enqueue, without polling, across all of its scope.
    pub push: bool,
    /// When the hint of a dead consumer comes again.
    pub redelivery: Redelivery,
    /// Longest time a delivery can stay unsettled before the provider has to renew it by a copy.
    pub longest_unacknowledged: Option<Duration>,
    /// The backend itself delays; otherwise the provider keeps delayed hints.
    pub native_delay: bool,
    /// Hints survive a restart of the backend.
    pub durable: bool,
    /// Names the queue as all its users see it, without secrets.
    pub domain: String,
}

impl QueueCapabilities {
    /// Capabilities of the least kind for this scope, redelivery and domain.
    pub fn new(scope: Scope, redelivery: Redelivery, domain: impl Into<String>) -> Self {
        Self {
            scope,
            push: false,
            redelivery,
            longest_unacknowledged: None,
            native_delay: false,
            durable: false,
            domain: domain.into(),
        }
    }

    /// With waiting consumers woken by an enqueue.
    #[must_use]
    pub fn with_push(mut self) -> Self {
        self.push = true;
        self
    }

    /// With a longest unacknowledged time.
    #[must_use]
    pub fn with_longest_unacknowledged(mut self, time: Duration) -> Self {
        self.longest_unacknowledged = Some(time);
        self
    }

    /// With delays kept by the backend.
    #[must_use]
    pub fn with_native_delay(mut self) -> Self {
        self.native_delay = true;
        self
    }

    /// With hints that survive a restart of the backend.
    #[must_use]
    pub fn with_durability(mut self) -> Self {
        self.durable = true;
        self
    }
}

/// How full a queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueDepth {
    /// Hints waiting for a consumer, delayed ones included.
    pub waiting: u64,
    /// Hints in the hands of consumers.
    pub in_hand: u64,
    /// Age of the oldest waiting hint that is not delayed, where the backend tells.
    pub oldest: Option<Duration>,
    /// Hints this queue dropped so far because it was full. When the number has grown, a poll makes up for it (I5).
    pub dropped: u64,
    /// The most hints it keeps, where it has a bound.
    pub capacity: Option<u64>,
}

impl QueueDepth {
    /// A depth.
    #[must_use]
    pub fn new(waiting: u64, in_hand: u64, oldest: Option<Duration>) -> Self {
        Self { waiting, in_hand, oldest, dropped: 0, capacity: None }
    }

    /// With a bound, and the hints dropped because of it.
    #[must_use]
    pub fn with_bound(mut self, capacity: u64, dropped: u64) -> Self {
        self.capacity = Some(capacity);
        self.dropped = dropped;
        self
    }
}

/// A queue of hints, settled after the work.
///
/// What must hold for every implementation, beside the methods' own rules:
///
/// * A hint whose consumer died, or dropped it unsettled, comes again within the capability's time, to any consumer of the scope.
/// * A settled delivery never settles another delivery of the same hint.
/// * Duplicates are allowed; a hint that is queued already, and not in hand, need not be queued twice.
/// * A hint that arrives while its like is in hand is kept, and comes after the settlement, whatever that is and whatever its delay.
/// * A hint that arrives while its like is delayed comes at once: it may tell of other work than the delayed one.
/// * No limit on deliveries, no dead letters: poison belongs to the instance, not to the hint.
/// * Memory is bounded: a full process-local queue drops hints, which the poller makes up for.
#[doc(alias = "IQueueProvider")]
#[async_trait]
pub trait QueueProvider: fmt::Debug + Send + Sync + 'static {
    /// What this provider can do. Constant over its life.
    fn capabilities(&self) -> QueueCapabilities;

    /// Adds hints, in order, in as few round trips as the backend allows. When it returns they are as durable as the
    /// capabilities say.
    ///
    /// # Errors
    /// [`QueueError`]; some of the hints may have been added, so the caller repeats all.
    async fn enqueue(&self, queue: QueueKind, items: &[WorkItem]) -> Result<(), QueueError>;

    /// Takes up to `max` hints. Returns as soon as there is at least one, empty after `wait`. Dropping the future loses
    /// nothing: what it had taken comes again.
    ///
    /// # Errors
    /// [`QueueError`]; nothing is lost.
    async fn dequeue(&self, queue: QueueKind, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError>;

    /// How full the queue is.
    ///
    /// # Errors
    /// [`QueueError`] when the backend does not answer.
    async fn depth(&self, queue: QueueKind) -> Result<QueueDepth, QueueError>;

    /// Sends what is waiting to be settled, gives back what is in hand, and refuses new calls, within `grace` (I7).
    /// Calling it again is harmless.
    ///
    /// # Errors
    /// [`QueueError`] when the backend did not confirm; unsettled hints come again.
    async fn stop(&self, grace: Duration) -> Result<(), QueueError>;
}
