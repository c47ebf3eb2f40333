//! For providers whose hints are leased to consumers: what such a queue has in hand, told to its backend in batches.
//!
//! A provider writes a [`LeaseTable`], which settles and renews, and claims by itself. [`Hand::start`] sees to the rest: deliveries
//! that settle themselves, renewals for as long as they live, and the giving back of what was claimed for nobody.

mod bell;
mod claimed;
mod hand;

pub use bell::bell;
pub use claimed::{Claimed, ClaimedHint, GiveBack};
pub use hand::Hand;

use super::{QueueError, QueueKind, Settlement};
use crate::{clock::Clock, store::InstanceId};
use std::{
    collections::HashSet,
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

/// How one queue leases hints.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leasing {
    /// Marks what this queue has in hand; no other queue has the same.
    pub owner: Arc<str>,
    /// Tells when a lease is to be renewed. Whether it is valid is the backend's affair.
    pub clock: Arc<dyn Clock>,
    /// How long a lease is. It is renewed at a third.
    pub lease: Duration,
}

impl Leasing {
    /// Leases of this length.
    pub fn new(owner: impl Into<Arc<str>>, clock: Arc<dyn Clock>, lease: Duration) -> Self {
        Self { owner: owner.into(), clock, lease }
    }
}

/// One delivery, and what became of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settled {
    /// The queue.
    pub queue: QueueKind,
    /// Whose hint it was.
    pub instance: InstanceId,
    /// By which claim of this queue it was in hand.
    pub claim: i64,
    /// What became of it.
    pub outcome: Settlement,
}

impl Settled {
    /// What is kept of the outcome, as tables write it: 0 acknowledged, 1 not, 2 dropped; and the delay.
    #[must_use]
    pub fn code(&self) -> (u8, Duration) {
        match self.outcome {
            Settlement::Ack => (0, Duration::ZERO),
            Settlement::Nack { delay } => (1, delay),
            Settlement::Abandoned => (2, Duration::ZERO),
        }
    }
}

/// A delivery whose lease is to be renewed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Held {
    /// Names the delivery within its queue.
    pub key: u64,
    /// The queue.
    pub queue: QueueKind,
    /// Whose hint it is.
    pub instance: InstanceId,
    /// By which claim of this queue it is in hand.
    pub claim: i64,
}

/// Where one queue's leases are written.
pub trait LeaseTable: fmt::Debug + Send + Sync + 'static {
    /// What can go wrong.
    type Error: std::error::Error + Clone + Send + Sync + 'static;

    /// The provider's name in messages.
    const PROVIDER: &'static str;

    /// Settles deliveries, and answers whether a hint waits again. Those that were handed to somebody else meanwhile are left alone:
    /// owner and claim are compared where they are settled.
    fn settle(&self, settled: Vec<Settled>) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Renews leases, and answers the keys of those that are held still. Owner and claim are compared where they are renewed.
    fn renew(&self, held: Vec<Held>) -> impl Future<Output = Result<HashSet<u64>, Self::Error>> + Send;

    /// The error of a queue that could not `action`.
    fn failed(action: String, error: Self::Error) -> QueueError;
}

/// Gives hints places in a line: each behind all that it gave before and, as far as clocks tell, behind those of other processes.
#[derive(Debug, Default)]
pub struct Positions(AtomicI64);

impl Positions {
    /// The next place, at `now`, in microseconds.
    pub fn next(&self, now: i64) -> i64 {
        let next = |last: i64| now.max(last.saturating_add(1));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        next(before.unwrap_or_else(|last| last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_each_other_also_when_the_clock_goes_back() {
        let positions = Positions::default();
        assert_eq!([7, 7, 3, 20].map(|now| positions.next(now)), [7, 8, 9, 20]);
    }
}
