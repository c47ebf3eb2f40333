use super::{PROVIDER, SqliteLeaseOptions, table::SqliteLeases};
use latchwork_core::{
    async_trait,
    lock::{DistributedLockProvider, LockCapabilities, LockError, LockGuard, LockRequest, lease::LeaseLocks},
    name::Namespace,
};
use std::time::Duration;

/// Locks by name as leases in tables of a SQLite file: exclusive, with fencing tokens, between the processes of one machine.
///
/// A clone is the same provider: `stop` ends both.
#[derive(Clone, Debug)]
pub struct SqliteLeaseLocks(LeaseLocks);

impl SqliteLeaseLocks {
    /// Opens the file, makes or checks the tables, and enters as a host. Needs a Tokio runtime, as do all asynchronous calls.
    ///
    /// # Errors
    /// [`LockError::Refused`] when the options, the file or its schema cannot work, [`LockError::Unavailable`] when the file is busy.
    pub async fn open(options: SqliteLeaseOptions) -> Result<Self, LockError> {
        options.lease.check(PROVIDER)?;
        let table = SqliteLeases::open(&options).await?;
        LeaseLocks::connect(table, options.lease).await.map(Self)
    }

    /// How many names this provider holds, waits for or asks for at the moment.
    #[must_use]
    pub fn held_names(&self) -> usize {
        self.0.held_names()
    }
}

#[async_trait]
impl DistributedLockProvider for SqliteLeaseLocks {
    fn capabilities(&self) -> LockCapabilities {
        self.0.capabilities()
    }

    fn namespace(&self) -> &Namespace {
        self.0.namespace()
    }

    async fn acquire(&self, request: LockRequest) -> Result<Option<LockGuard>, LockError> {
        self.0.acquire(request).await
    }

    async fn check(&self) -> Result<(), LockError> {
        self.0.check().await
    }

    async fn stop(&self, grace: Duration) -> Result<(), LockError> {
        self.0.stop(grace).await
    }
}
