//! Locks as leases in the store's file; see [`latchwork_core::lock::lease`].
//!
//! Three tables of the namespace: a row per lease (`latchwork_lease_host`), a row per held name (`latchwork_lease_lock`), the last
//! fencing token (`latchwork_lease_fence`). Acquires and releases share the groups of the file's writer; renewals have a
//! transaction, and a connection, of their own.
//!
//! Locks in files (`latchwork-lock-file`) and these do not exclude each other, so they name different lock domains, and a store
//! refuses a host that comes with the other kind.

mod options;
mod provider;
mod table;

pub use options::SqliteLeaseOptions;
pub use provider::SqliteLeaseLocks;

use latchwork_core::options::Configure;
use latchwork_sqlite_client::SqliteOptions;

const PROVIDER: &str = "sqlite-lease";

/// `use_sqlite_lease_locking` on everything that can be configured.
pub trait UseSqliteLeaseLocking: Configure {
    /// Keeps locks as leases in this file, which is given as a path or as a URL as for
    /// [`use_sqlite_persistence`](crate::UseSqlitePersistence::use_sqlite_persistence): all hosts that do so, in the same namespace,
    /// exclude each other. Nothing is opened before the host starts.
    #[must_use]
    fn use_sqlite_lease_locking(mut self, url: impl Into<String>) -> Self {
        let url = url.into();
        self.options().use_distributed_lock_manager(async move |context| {
            let options = SqliteLeaseOptions::new(SqliteOptions::parse(&url)?).in_context(context);
            Ok(SqliteLeaseLocks::open(options).await?)
        });
        self
    }

    /// Keeps locks as these options say; namespace, node, clock and schema mode are the host's.
    #[must_use]
    fn use_sqlite_lease_locking_with(mut self, options: SqliteLeaseOptions) -> Self {
        self.options()
            .use_distributed_lock_manager(async move |context| Ok(SqliteLeaseLocks::open(options.in_context(context)).await?));
        self
    }
}

impl<T: Configure> UseSqliteLeaseLocking for T {}
