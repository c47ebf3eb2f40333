use super::{LockError, LockKey};
use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Why a grant ended before its guard gave it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The session that held it closed.
    SessionClosed,
    /// The lease was not renewed in time.
    LeaseExpired,
    /// The provider was stopped.
    Stopped,
    /// It was held longer than [`LockGuard::limit_hold`] allowed.
    HeldTooLong,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SessionClosed => "the session that held it closed",
            Self::LeaseExpired => "its lease was not renewed in time",
            Self::Stopped => "the lock provider was stopped",
            Self::HeldTooLong => "it was held longer than allowed",
        })
    }
}

/// Looks whether a grant has ended.
type Look = dyn Fn() -> Option<Loss> + Send + Sync;

/// Kept by a provider for each grant: fires the loss, once.
#[derive(Clone, Default)]
pub struct LossSignal {
    token: CancellationToken,
    why: Arc<OnceLock<Loss>>,
    look: Option<Arc<Look>>,
}

impl fmt::Debug for LossSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossSignal").field("why", &self.why.get()).finish_non_exhaustive()
    }
}

impl LossSignal {
    /// A signal that has not fired.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A signal that also fires when somebody asks and `look` sees a loss: for grants that end by a clock. Whoever was paused
    /// beyond the end learns of it by its first call, before any task that would fire the signal has run again. `look` must
    /// neither block nor take long.
    #[must_use]
    pub fn looking(look: impl Fn() -> Option<Loss> + Send + Sync + 'static) -> Self {
        Self { look: Some(Arc::new(look)), ..Self::default() }
    }

    /// Tells all guards of the grant that it is lost. The first reason stays.
    pub fn fire(&self, why: Loss) {
        let _ = self.why.set(why);
        self.token.cancel();
    }

    /// Whether it has fired.
    #[must_use]
    pub fn is_fired(&self) -> bool {
        if let Some(look) = self.look.as_ref().filter(|_| !self.token.is_cancelled())
            && let Some(why) = look()
        {
            self.fire(why);
        }
        self.token.is_cancelled()
    }
}

/// How a provider frees a grant. Handed in with the grant, called at most once, by the last guard of the grant.
///
/// Must not block and need not be inside a runtime: it passes the request to a task of the provider. For a grant that was
/// lost it must be harmless: it never frees a newer grant of the same key.
pub trait Release: Send + Sync {
    /// Frees the grant, and answers `reply` when there is one and the backend has confirmed.
    fn release(self: Box<Self>, reply: Option<oneshot::Sender<Result<(), LockError>>>);
}

struct Grant {
    key: LockKey,
    fencing: Option<u64>,
    loss: LossSignal,
    release: Mutex<Option<Box<dyn Release>>>,
    watchdog: OnceLock<DropGuard>,
}

impl Grant {
    fn take_release(&self) -> Option<Box<dyn Release>> {
        self.release.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(release) = self.take_release() {
            release.release(None);
        }
    }
}

/// A held lock. Dropping it frees the lock, through the provider's own task; the last guard of a grant does.
///
/// Not `Clone`: a second guard of the same grant is made explicitly with [`reenter`](Self::reenter).
#[must_use = "a lock is freed as soon as its guard is dropped"]
pub struct LockGuard {
    grant: Arc<Grant>,
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", &self.grant.key.as_str())
            .field("fencing_token", &self.grant.fencing)
            .field("lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

impl LockGuard {
    /// For providers: the guard of a new grant. The provider keeps a clone of `loss` and fires it when the grant ends early.
    pub fn new(key: LockKey, fencing: Option<u64>, loss: LossSignal, release: impl Release + 'static) -> Self {
        let grant = Grant { key, fencing, loss, release: Mutex::new(Some(Box::new(release))), watchdog: OnceLock::new() };
        Self { grant: Arc::new(grant) }
    }

    /// The key that is held.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.grant.key
    }

    /// A number that is higher for every later grant of the same key, over hand-overs and crashes; `None` where the
    /// backend has none. Hand it to whatever the lock protects, and let that refuse lower numbers.
    #[must_use]
    pub fn fencing_token(&self) -> Option<u64> {
        self.grant.fencing
    }

    /// Whether the grant has ended early.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.grant.loss.is_fired()
    }

    /// Resolves with the reason when the grant ends early, and never otherwise. Owned: it may be moved into a task.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static + use<> {
        let loss = self.grant.loss.clone();
        async move {
            if !loss.is_fired() {
                loss.token.cancelled().await;
            }
            loss.why.get().copied().unwrap_or(Loss::Stopped)
        }
    }

    /// A token that is cancelled when the grant ends early; for code that takes tokens rather than futures.
    #[must_use]
    pub fn lost_token(&self) -> CancellationToken {
        let _ = self.is_lost();
        self.grant.loss.token.clone()
    }

    /// Another guard of the same grant: explicit re-entrancy. The lock is freed when the last guard is gone.
    pub fn reenter(&self) -> LockGuard {
        LockGuard { grant: self.grant.clone() }
    }

    /// Frees the lock by itself, and signals [`Loss::HeldTooLong`], when it is still held after `longest`: a watchdog
    /// against holders that hang. Counts from this call; only the first call on a grant has an effect. Needs a Tokio runtime.
    pub fn limit_hold(&self, longest: Duration) {
        let stop = CancellationToken::new();
        if self.grant.watchdog.set(stop.clone().drop_guard()).is_err() {
            return;
        }
        let grant = Arc::downgrade(&self.grant);
        // Owned by the grant: it ends when the last guard goes.
        tokio::spawn(async move {
            if stop.run_until_cancelled(tokio::time::sleep(longest)).await.is_none() {
                return;
            }
            if let Some(grant) = grant.upgrade() {
                grant.loss.fire(Loss::HeldTooLong);
                if let Some(release) = grant.take_release() {
                    tracing::warn!(key = %grant.key, ?longest, "lock held longer than allowed, freed by its watchdog");
                    release.release(None);
                }
            }
        });
    }

    /// Frees the lock and waits for the backend's answer. With other guards of this grant alive it only gives this one up.
    /// Dropping the returned future does not stop the release. Freeing a lost grant is harmless and `Ok`.
    ///
    /// # Errors
    /// [`LockError::Unavailable`] when the backend did not confirm; the lock then ends with its session or lease.
    pub async fn release(self) -> Result<(), LockError> {
        let Some(grant) = Arc::into_inner(self.grant) else { return Ok(()) };
        let Some(release) = grant.take_release() else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        release.release(Some(reply));
        // No answer: the provider was stopped meanwhile, and has freed all.
        answer.await.unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Namespace;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Clone, Default)]
    struct Counted(Arc<AtomicU32>);

    impl Release for Counted {
        fn release(self: Box<Self>, reply: Option<oneshot::Sender<Result<(), LockError>>>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            if let Some(reply) = reply {
                let _ = reply.send(Ok(()));
            }
        }
    }

    fn guard() -> (LockGuard, LossSignal, Counted) {
        let (loss, released) = (LossSignal::new(), Counted::default());
        let key = LockKey::new(&Namespace::default(), "k").expect("a valid name");
        (LockGuard::new(key, Some(7), loss.clone(), released.clone()), loss, released)
    }

    #[tokio::test]
    async fn the_last_guard_of_a_grant_frees_it_once() {
        let (first, _, released) = guard();
        let second = first.reenter();
        first.release().await.expect("released");
        assert_eq!(released.0.load(Ordering::SeqCst), 0);
        drop(second);
        assert_eq!(released.0.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_loss_reaches_every_guard_with_its_first_reason() {
        let (guard, loss, _) = guard();
        let lost = tokio::spawn(guard.lost());
        loss.fire(Loss::LeaseExpired);
        loss.fire(Loss::Stopped);
        assert_eq!(lost.await.expect("joined"), Loss::LeaseExpired);
        assert!(guard.reenter().is_lost());
    }

    #[tokio::test]
    async fn whoever_asks_sees_a_loss_that_nobody_has_signalled_yet() {
        let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = over.clone();
        let loss = LossSignal::looking(move || seen.load(Ordering::SeqCst).then_some(Loss::LeaseExpired));
        let key = LockKey::new(&Namespace::default(), "k").expect("a valid name");
        let guard = LockGuard::new(key, None, loss, Counted::default());
        assert!(!guard.is_lost() && !guard.lost_token().is_cancelled());
        over.store(true, Ordering::SeqCst);
        assert!(guard.lost_token().is_cancelled() && guard.is_lost());
        over.store(false, Ordering::SeqCst);
        assert!(guard.is_lost(), "what is lost stays lost");
        assert_eq!(guard.lost().await, Loss::LeaseExpired);
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_held_too_long_is_freed_once_and_says_so() {
        let (guard, _, released) = guard();
        guard.limit_hold(Duration::from_secs(1));
        assert_eq!(guard.lost().await, Loss::HeldTooLong);
        assert_eq!(released.0.load(Ordering::SeqCst), 1);
        guard.release().await.expect("harmless");
        assert_eq!(released.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_guard_may_be_dropped_outside_a_runtime() {
        let (guard, _, released) = guard();
        drop(guard);
        assert_eq!(released.0.load(Ordering::SeqCst), 1);
    }
}
