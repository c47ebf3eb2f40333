use crate::{
    Scope,
    lock::{Failure, KeyLimit},
};
use async_trait::async_trait;
use std::{fmt, sync::Arc, time::Duration};
use uuid::Uuid;

/// The identity of a host: drawn anew for each lease, never used again. Shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostId(Uuid);

impl HostId {
    /// One that nobody has.
    #[must_use]
    pub fn draw() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_simple(), f)
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A grant to be freed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseRelease {
    /// The name, as the backend knows it.
    pub name: Arc<str>,
    /// The fencing token of the grant; with none, whatever the host has under the name.
    pub fence: Option<u64>,
}

impl LeaseRelease {
    /// The grant of this name and token.
    #[must_use]
    pub fn new(name: Arc<str>, fence: Option<u64>) -> Self {
        Self { name, fence }
    }
}

/// What is asked in one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseBatch {
    /// Numbers the requests of one provider upwards.
    pub number: u64,
    /// Done first. At most 1,000.
    pub releases: Vec<LeaseRelease>,
    /// Names, each at most once, of which this host holds none as far as its process knows. At most 500.
    pub acquires: Vec<Arc<str>>,
}

impl LeaseBatch {
    /// This is asked.
    #[must_use]
    pub fn new(number: u64, releases: Vec<LeaseRelease>, acquires: Vec<Arc<str>>) -> Self {
        Self { number, releases, acquires }
    }
}

/// The answer to a [`LeaseBatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// It was done: for each acquire in its order the fencing token of the grant, or none when another host holds the name.
    Done(Vec<Option<u64>>),
    /// The host's lease has expired, or is not there; nothing was done.
    Ended,
}

/// The statements of a backend that keeps leases.
///
/// What must hold for every implementation:
///
/// * All times are the server's, compared there. A lease is *live* while the server's time is before its end; one that is not live
///   never becomes live again.
/// * Each method is one round trip, but for tries after a conflict that has undone the whole request.
/// * A request that is dropped or fails may or may not have been done, also later.
/// * Fencing tokens of one name grow with each grant, also after its row was removed, also over the crash of the server: drawn while
///   the name is locked for the grant, not before.
#[async_trait]
pub trait LeaseTable: fmt::Debug + Send + Sync + 'static {
    /// The provider's name in errors, for example `sqlserver`.
    fn provider(&self) -> &'static str;

    /// Names the lock service as all its users see it; see [`LockCapabilities`](crate::lock::LockCapabilities).
    fn domain(&self) -> String;

    /// How far its locks reach. A cluster, unless the table says otherwise.
    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    /// The longest name that the table keeps.
    fn longest_key(&self) -> KeyLimit;

    /// Enters a host with a live lease of so long from now, and ends that of `previous`.
    ///
    /// # Errors
    /// [`Failure`] when that was not confirmed.
    async fn enter(&self, host: HostId, node: &str, previous: Option<HostId>, lease: Duration) -> Result<(), Failure>;

    /// Lets a live lease last for so long from now. `false` when it is not live. On a connection of its own.
    ///
    /// # Errors
    /// [`Failure`] when that was not confirmed.
    async fn renew(&self, host: HostId, lease: Duration) -> Result<bool, Failure>;

    /// For a live host: releases, then grants the names that nobody holds, or a host whose lease is not live any more, or, left over
    /// from a request without an answer, this host itself. All of it in transactions that check the lease.
    ///
    /// A request does nothing when one of the same host with a higher number was done before it: that is what makes it safe to
    /// clean up after one without an answer.
    ///
    /// # Errors
    /// [`Failure`] when that was not confirmed.
    async fn exchange(&self, host: HostId, batch: &LeaseBatch) -> Result<LeaseAnswer, Failure>;

    /// Ends the lease at once, and with it all locks of the host.
    ///
    /// # Errors
    /// [`Failure`] when that was not confirmed.
    async fn leave(&self, host: HostId) -> Result<(), Failure>;

    /// Removes rows of hosts that are not live any more, a bounded number of them. Called once per renewal, apart from it.
    ///
    /// # Errors
    /// [`Failure`], which is no more than logged.
    async fn purge(&self) -> Result<(), Failure>;
}
