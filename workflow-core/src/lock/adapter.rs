use super::{DistributedLockProvider, LockError, LockGuard, LockProviderExt};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Workflow Core's own pair of calls, [`acquire_lock`](Self::acquire_lock) and [`release_lock`](Self::release_lock), over
/// any provider. It keeps the guards; code written for it needs none. Prefer guards in new code.
#[derive(Debug)]
pub struct NamedLocks {
    provider: Arc<dyn DistributedLockProvider>,
    held: Mutex<HashMap<String, LockGuard>>,
}

impl NamedLocks {
    /// The pair of calls over this provider.
    pub fn new(provider: Arc<dyn DistributedLockProvider>) -> Self {
        Self { provider, held: Mutex::default() }
    }

    /// One try. `false` when somebody holds it, this adapter included.
    ///
    /// # Errors
    /// [`LockError`] of the provider.
    #[doc(alias = "AcquireLock")]
    pub async fn acquire_lock(&self, id: &str) -> Result<bool, LockError> {
        let Some(guard) = self.provider.try_lock(id).await? else { return Ok(false) };
        // An older guard of this name was lost, else the provider had not granted again; freeing it is harmless.
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), guard);
        Ok(true)
    }

    /// Frees what this adapter holds under `id`; nothing otherwise.
    ///
    /// # Errors
    /// [`LockError`] of the provider.
    #[doc(alias = "ReleaseLock")]
    pub async fn release_lock(&self, id: &str) -> Result<(), LockError> {
        let guard = self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        match guard {
            Some(guard) => guard.release().await,
            None => Ok(()),
        }
    }

    /// Whether this adapter holds `id`, and it is not lost.
    #[must_use]
    pub fn holds(&self, id: &str) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).get(id).is_some_and(|guard| !guard.is_lost())
    }
}
