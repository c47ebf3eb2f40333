use super::Faults;
use latchwork_core::{
    async_trait,
    lock::{DistributedLockProvider, LockCapabilities, LockError, LockGuard, LockRequest, Loss, LossSignal, Release},
    name::Namespace,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{runtime::Handle, sync::oneshot, task::AbortHandle};

/// The calls of a lock provider. What they are about is the key, namespace included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each is named after its method")]
pub enum LockCall {
    Acquire,
    /// By a guard's `release` or its drop. A release that fails is not passed on: the lock stays held.
    Release,
    Check,
    Stop,
}

/// How a call of a lock provider fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockFault {
    /// The service cannot be reached.
    Unavailable,
    /// The service refuses, now and always.
    Refused,
    /// Somebody else has the lock. For [`LockCall::Acquire`]; the other calls take it for `Unavailable`.
    Contended,
}

/// A lock provider that fails, waits, refuses, and loses held locks on command; see the [module](super).
#[derive(Debug)]
pub struct FaultyLocks<P> {
    inner: P,
    faults: Faults<LockCall, LockFault>,
    held: Held,
}

/// The grants that are held through the wrapper. Clones are handles to the same.
#[derive(Clone, Debug, Default)]
struct Held(Arc<Mutex<Grants>>);

#[derive(Debug, Default)]
struct Grants {
    last: u64,
    by_number: HashMap<u64, Grant>,
}

#[derive(Debug)]
struct Grant {
    key: String,
    loss: LossSignal,
    guard: LockGuard,
    /// Carries on a loss of the wrapped provider's own.
    watch: AbortHandle,
}

impl Held {
    fn grants(&self) -> MutexGuard<'_, Grants> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, number: u64) -> Option<LockGuard> {
        let grant = self.grants().by_number.remove(&number)?;
        grant.watch.abort();
        Some(grant.guard)
    }

    fn matching(&self, part: &str) -> Vec<u64> {
        let grants = self.grants();
        grants.by_number.iter().filter(|(_, grant)| grant.key.contains(part)).map(|(number, _)| *number).collect()
    }
}

impl<P: DistributedLockProvider> FaultyLocks<P> {
    /// Wraps a lock provider.
    pub fn new(inner: P) -> Self {
        Self { inner, faults: Faults::default(), held: Held::default() }
    }

    /// The rules, to be kept when the provider is given to a host.
    #[must_use]
    pub fn faults(&self) -> &Faults<LockCall, LockFault> {
        &self.faults
    }

    /// Ends all grants whose key contains this text, as when their sessions die: their holders are told, then the locks are free.
    /// Returns how many there were.
    pub fn lose(&self, part: &str) -> usize {
        self.losses().lose(part)
    }

    /// The means to lose locks, to be kept when the provider is given to a host.
    #[must_use]
    pub fn losses(&self) -> Losses {
        Losses(self.held.clone())
    }

    fn error(fault: LockFault, key: &str) -> LockError {
        match fault {
            LockFault::Refused => LockError::refused("faulty", key, "a fault on command"),
            LockFault::Unavailable | LockFault::Contended => LockError::unavailable("faulty", key, "a fault on command"),
        }
    }
}

/// Loses locks that are held through a [`FaultyLocks`].
#[derive(Clone, Debug)]
pub struct Losses(Held);

impl Losses {
    /// As [`FaultyLocks::lose`].
    pub fn lose(&self, part: &str) -> usize {
        let lost = self.0.matching(part);
        for number in &lost {
            if let Some(grant) = self.0.grants().by_number.get(number) {
                grant.loss.fire(Loss::SessionClosed);
            }
            drop(self.0.take(*number));
        }
        lost.len()
    }

    /// Frees all grants whose key contains this text, and tells nobody: what a broken lock server does, or a holder that was paused
    /// misses. Returns how many there were.
    pub fn lose_silently(&self, part: &str) -> usize {
        let lost = self.0.matching(part);
        for number in &lost {
            drop(self.0.take(*number));
        }
        lost.len()
    }

    /// The keys that are held, sorted.
    #[must_use]
    pub fn held(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.0.grants().by_number.values().map(|grant| grant.key.clone()).collect();
        keys.sort();
        keys
    }
}

/// Passes a release on.
struct Releases {
    number: u64,
    key: String,
    held: Held,
    faults: Faults<LockCall, LockFault>,
    runtime: Handle,
    error: fn(LockFault, &str) -> LockError,
}

impl Release for Releases {
    fn release(self: Box<Self>, reply: Option<oneshot::Sender<Result<(), LockError>>>) {
        let runtime = self.runtime.clone();
        runtime.spawn(async move {
            let released = async {
                let answer = self.faults.before(LockCall::Release, &self.key).await?;
                // A grant that was lost is gone already.
                if let Some(guard) = self.held.take(self.number)
                    && guard.release().await.is_err()
                {
                    return Err(LockFault::Unavailable);
                }
                answer.after().await
            };
            let released = released.await.map_err(|fault| (self.error)(fault, &self.key));
            if let Some(reply) = reply {
                let _ = reply.send(released);
            }
        });
    }
}

#[async_trait]
impl<P: DistributedLockProvider> DistributedLockProvider for FaultyLocks<P> {
    fn capabilities(&self) -> LockCapabilities {
        self.inner.capabilities()
    }

    fn namespace(&self) -> &Namespace {
        self.inner.namespace()
    }

    async fn acquire(&self, request: LockRequest) -> Result<Option<LockGuard>, LockError> {
        let key = request.key.clone();
        let name = key.as_str().to_owned();
        let answer = match self.faults.before(LockCall::Acquire, &name).await {
            Ok(answer) => answer,
            Err(LockFault::Contended) => return Ok(None),
            Err(fault) => return Err(Self::error(fault, &name)),
        };
        let Some(guard) = self.inner.acquire(request).await? else { return Ok(None) };
        // An answer that is lost leaves the grant with nobody: it is freed.
        answer.after().await.map_err(|fault| Self::error(fault, &name))?;
        let (loss, fencing, own_loss) = (LossSignal::new(), guard.fencing_token(), guard.lost());
        let watch = tokio::spawn({
            let loss = loss.clone();
            async move { loss.fire(own_loss.await) }
        });
        let number = {
            let mut grants = self.held.grants();
            grants.last += 1;
            let number = grants.last;
            let grant = Grant { key: name.clone(), loss: loss.clone(), guard, watch: watch.abort_handle() };
            grants.by_number.insert(number, grant);
            number
        };
        let (held, faults) = (self.held.clone(), self.faults.clone());
        let release = Releases { number, key: name, held, faults, runtime: Handle::current(), error: Self::error };
        Ok(Some(LockGuard::new(key, fencing, loss, release)))
    }

    async fn check(&self) -> Result<(), LockError> {
        let answer = self.faults.before(LockCall::Check, "").await.map_err(|fault| Self::error(fault, ""))?;
        self.inner.check().await?;
        answer.after().await.map_err(|fault| Self::error(fault, ""))
    }

    async fn stop(&self, grace: Duration) -> Result<(), LockError> {
        let answer = self.faults.before(LockCall::Stop, "").await.map_err(|fault| Self::error(fault, ""))?;
        self.inner.stop(grace).await?;
        answer.after().await.map_err(|fault| Self::error(fault, ""))
    }
}
