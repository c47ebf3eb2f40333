use super::{DistributedLockProvider, LockError, LockGuard, LockKey, LockMode, LockRequest, Wait};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Conveniences for any lock provider, also behind `dyn` and `Arc`. Names are completed by the provider's namespace.
///
/// All futures are safe to drop. All errors are [`LockError`]; `None` is contention.
pub trait LockProviderExt: DistributedLockProvider {
    /// One try for the exclusive lock on `name`.
    fn try_lock(&self, name: &str) -> impl Future<Output = Result<Option<LockGuard>, LockError>> + Send {
        acquire(self, name, Wait::No, LockMode::Exclusive)
    }

    /// Waits up to `timeout` for the exclusive lock on `name`.
    fn lock(&self, name: &str, timeout: Duration) -> impl Future<Output = Result<Option<LockGuard>, LockError>> + Send {
        acquire(self, name, Wait::UpTo(timeout), LockMode::Exclusive)
    }

    /// One try for the shared lock on `name`. [`LockError::Unsupported`] where the backend has no shared mode.
    fn try_lock_shared(&self, name: &str) -> impl Future<Output = Result<Option<LockGuard>, LockError>> + Send {
        acquire(self, name, Wait::No, LockMode::Shared)
    }

    /// Waits up to `timeout` for the shared lock on `name`. [`LockError::Unsupported`] where the backend has no shared mode.
    fn lock_shared(&self, name: &str, timeout: Duration) -> impl Future<Output = Result<Option<LockGuard>, LockError>> + Send {
        acquire(self, name, Wait::UpTo(timeout), LockMode::Shared)
    }

    /// All of these names or none, within `timeout` in all. They are taken in sorted order, so that two callers never wait
    /// for each other in a circle; what was already taken is freed when one cannot be had. A name given twice is taken once.
    fn lock_all<'a, I>(
        &'a self,
        names: I,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<LockSet>, LockError>> + Send + 'a
    where
        I: IntoIterator + 'a,
        I::Item: AsRef<str>,
    {
        let keys: Result<Vec<_>, _> = names.into_iter().map(|name| LockKey::new(self.namespace(), name.as_ref())).collect();
        async move {
            let mut keys = keys?;
            keys.sort();
            keys.dedup();
            // A sum beyond what the clock can count is a wait for ever.
            let deadline = Instant::now().checked_add(timeout);
            let mut guards = Vec::with_capacity(keys.len());
            for key in keys {
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                let wait = left.map_or(Wait::Forever, |left| if left.is_zero() { Wait::No } else { Wait::UpTo(left) });
                match self.acquire(LockRequest::new(key).with_wait(wait)).await? {
                    Some(guard) => guards.push(guard),
                    None => return LockSet { guards }.release().await.map(|()| None),
                }
            }
            Ok(Some(LockSet { guards }))
        }
    }
}

impl<P: DistributedLockProvider + ?Sized> LockProviderExt for P {}

async fn acquire<P>(provider: &P, name: &str, wait: Wait, mode: LockMode) -> Result<Option<LockGuard>, LockError>
where
    P: DistributedLockProvider + ?Sized,
{
    let key = LockKey::new(provider.namespace(), name)?;
    provider.acquire(LockRequest::new(key).with_wait(wait).with_mode(mode)).await
}

/// Several locks held together. Dropping it frees them all.
#[derive(Debug)]
#[must_use = "locks are freed as soon as their guards are dropped"]
pub struct LockSet {
    guards: Vec<LockGuard>,
}

impl LockSet {
    /// The guards, in the order of their keys.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// Whether at least one of them has ended early.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guards.iter().any(LockGuard::is_lost)
    }

    /// Resolves when the first of them ends early, and never otherwise. Owned: it may be moved into a task.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let tokens: Vec<CancellationToken> = self.guards.iter().map(LockGuard::lost_token).collect();
        async move {
            let mut waits: Vec<_> = tokens.iter().map(|token| Box::pin(token.cancelled())).collect();
            std::future::poll_fn(|cx| {
                let lost = waits.iter_mut().any(|wait| wait.as_mut().poll(cx).is_ready());
                if lost { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
        }
    }

    /// Frees all of them, in reverse order, and waits for the answers.
    ///
    /// # Errors
    /// The first [`LockError`]; the others are freed all the same.
    pub async fn release(self) -> Result<(), LockError> {
        let mut result = Ok(());
        for guard in self.guards.into_iter().rev() {
            let released = guard.release().await;
            result = result.and(released);
        }
        result
    }
}
