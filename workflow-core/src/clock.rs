//! Where all time comes from.

use async_trait::async_trait;
use chrono::{DateTime, SubsecRound, Utc};
use std::{
    fmt,
    time::{Duration, Instant, SystemTime},
};

/// A point in time, UTC. What is stored or compared is in whole microseconds.
pub type Timestamp = DateTime<Utc>;

/// Cuts a point in time to whole microseconds, which is what every store keeps.
#[must_use]
pub fn whole_micros(time: Timestamp) -> Timestamp {
    time.trunc_subsecs(6)
}

/// Adds a duration; a sum beyond what can be represented becomes the end of time.
#[must_use]
pub fn add(time: Timestamp, span: Duration) -> Timestamp {
    chrono::TimeDelta::from_std(span).ok().and_then(|span| time.checked_add_signed(span)).map_or(Timestamp::MAX_UTC, whole_micros)
}

/// The distance from `earlier` to `later`, zero when `later` is not later.
#[must_use]
pub fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    (later - earlier).to_std().unwrap_or(Duration::ZERO)
}

/// A node's source of time. Tests put a virtual one in its place.
///
/// Times that several nodes compare come from the store, never from a node's clock; memory and SQLite stores, which have
/// no clock of their own, take theirs from here.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time of day, in whole microseconds. May jump.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment of this process. Never goes back, unlike [`now`](Self::now).
    fn monotonic(&self) -> Duration;
    /// Resolves when [`monotonic`](Self::monotonic) has reached `deadline`. Dropping the future is safe.
    async fn sleep_until(&self, deadline: Duration);
}

/// Conveniences for any clock.
pub trait ClockExt: Clock {
    /// Resolves after `span`.
    fn sleep(&self, span: Duration) -> impl Future<Output = ()> + Send {
        self.sleep_until(self.monotonic().saturating_add(span))
    }
}

impl<C: Clock + ?Sized> ClockExt for C {}

/// The operating system's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// The operating system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        whole_micros(SystemTime::now().into())
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    async fn sleep_until(&self, deadline: Duration) {
        match self.origin.checked_add(deadline) {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_distances_saturate() {
        let now = SystemClock::new().now();
        assert_eq!(add(now, Duration::MAX), Timestamp::MAX_UTC);
        assert_eq!(between(now, now - chrono::TimeDelta::seconds(1)), Duration::ZERO);
        assert_eq!(between(now, add(now, Duration::from_secs(5))), Duration::from_secs(5));
    }
}
