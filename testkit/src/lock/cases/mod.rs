//! The cases, and what they share.

mod cancel;
mod grant;
mod life;
mod load;
mod names;
mod sets;
mod shared;
mod wait;

pub(super) use cancel::*;
pub(super) use grant::*;
pub(super) use life::*;
pub(super) use load::*;
pub(super) use names::*;
pub(super) use sets::*;
pub(super) use shared::*;
pub(super) use wait::*;

use super::{
    Fixture,
    case::{Checked, Failed, Verdict},
};
use latchwork_core::lock::{
    DistributedLockProvider, LockError, LockGuard, LockKey, LockMode, LockProviderExt, LockRequest, Wait,
};
use std::{sync::Arc, task::Poll, time::Duration};
use tokio::task::JoinHandle;

tokio::task_local! {
    /// The fixture's patience, for the task of a case.
    pub(super) static PATIENCE: Duration;
}

/// Longest that something may take which must happen soon. Only for the task of a case.
fn patience() -> Duration {
    PATIENCE.try_with(|patience| *patience).unwrap_or(Duration::from_secs(20))
}

type Locks = Arc<dyn DistributedLockProvider>;

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::lock::case::Failed(format!($($message)+)));
        }
    };
}
use ensure;

/// A name that no other case, run or user of the same service has.
fn fresh(name: &str) -> String {
    format!("conformance-{}-{name}", uuid::Uuid::now_v7().simple())
}

fn key(locks: &Locks, name: &str) -> Result<LockKey, Failed> {
    Ok(LockKey::new(locks.namespace(), name)?)
}

/// One try, which must be granted.
async fn take(locks: &Locks, name: &str) -> Result<LockGuard, Failed> {
    let granted = locks.try_lock(name).await?;
    granted.ok_or_else(|| Failed(format!("one try for `{}`, which nobody holds, was not granted", shown(name))))
}

/// Granted soon: for a lock that was freed without waiting for the answer.
async fn take_soon(locks: &Locks, name: &str, why: &str) -> Result<LockGuard, Failed> {
    let patience = patience();
    let granted = locks.lock(name, patience).await?;
    granted.ok_or_else(|| Failed(format!("`{}` is still held after {patience:?}, although {why}", shown(name))))
}

/// One try, which must find the lock held.
async fn must_be_held(locks: &Locks, name: &str, why: &str) -> Result<(), Failed> {
    match locks.try_lock(name).await {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(Failed(format!("`{}` was granted, although {why}", shown(name)))),
        Err(error) => Err(Failed(format!("contention must be `Ok(None)`, and was the error: {error}"))),
    }
}

/// Resolves to an error when the future does not end soon.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> Result<T, Failed> {
    let patience = patience();
    tokio::time::timeout(patience, future).await.map_err(|_| Failed(format!("{what} did not happen within {patience:?}")))
}

fn shown(name: &str) -> &str {
    latchwork_core::limits::cut(name, 80)
}

/// Polls once, and no more.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

type Acquired = Result<Option<LockGuard>, LockError>;

/// An acquire that owns its provider.
fn acquire(
    locks: &Locks,
    name: &str,
    wait: Wait,
    mode: LockMode,
) -> Result<impl Future<Output = Acquired> + Send + use<>, Failed> {
    let request = LockRequest::new(key(locks, name)?).with_wait(wait).with_mode(mode);
    let locks = locks.clone();
    Ok(async move { locks.acquire(request).await })
}

/// A task that waits for the exclusive lock; it has taken its place in the queue when this returns.
async fn waiter(locks: &Locks, name: &str, wait: Wait) -> Result<JoinHandle<Acquired>, Failed> {
    let mut acquire = Box::pin(acquire(locks, name, wait, LockMode::Exclusive)?);
    let at_once = poll_once(&mut acquire).await;
    Ok(tokio::spawn(async move {
        match at_once {
            Some(acquired) => acquired,
            None => acquire.await,
        }
    }))
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        // The constants of Knuth's MMIX generator; the high bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Both directions: what holds between the two nodes must hold whichever comes first.
fn directions(fixture: &Fixture) -> [(&Locks, &Locks); 2] {
    [(&fixture.one, &fixture.other), (&fixture.other, &fixture.one)]
}

/// All pairs, the same provider twice among them.
fn pairs(fixture: &Fixture) -> [(&Locks, &Locks); 3] {
    [(&fixture.one, &fixture.other), (&fixture.other, &fixture.one), (&fixture.one, &fixture.one)]
}
