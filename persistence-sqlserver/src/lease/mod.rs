//! Locks as leases in the store's database; see [`latchwork_core::lock::lease`].
//!
//! Three tables and a sequence, in the schema of the store of the same namespace: a row per lease (`lease_host`), the number of
//! its last request (`lease_request`), a row per held name (`lease_lock`). Acquires and releases go in one round trip per
//! batch, on one session; renewals have another.
//!
//! Application locks (`latchwork-lock-sqlserver`) and these do not exclude each other, so they name different lock domains, and
//! a store refuses a host that comes with the other kind.

mod options;
mod provider;
mod table;

pub use options::SqlServerLeaseOptions;
pub use provider::SqlServerLeaseLocks;

use crate::schema::schema_name;
use latchwork_core::{name::Namespace, options::Configure};
use latchwork_sqlserver_client::ConnectionString;

const PROVIDER: &str = "sqlserver-lease";

/// The script for a DBA that makes, or brings up to date from `from`, the tables of leases of a namespace: for `sqlcmd`, in one
/// transaction. 0 is a database that has none of it.
#[must_use]
pub fn lease_schema_script(namespace: &Namespace, from: i32) -> String {
    table::migrations(schema_name(namespace)).script(from)
}

/// `use_sqlserver_lease_locking` on a host's builder.
pub trait UseSqlServerLeaseLocking: Configure {
    /// Keeps locks as leases in the database of this ADO.NET connection string: all hosts that do so, in the same namespace, exclude
    /// each other. Nothing connects before the host starts.
    #[must_use]
    fn use_sqlserver_lease_locking(self, connection_string: impl Into<ConnectionString>) -> Self {
        self.use_sqlserver_lease_locking_with(SqlServerLeaseOptions::new(connection_string))
    }

    /// Keeps locks as these options say; namespace, node, clock and schema mode are the host's.
    #[must_use]
    fn use_sqlserver_lease_locking_with(mut self, mut options: SqlServerLeaseOptions) -> Self {
        self.options().use_distributed_lock_manager(async move |context| {
            options.lease = options.lease.with_namespace(context.namespace).with_node(&*context.node).with_clock(context.clock);
            options.schema = context.schema;
            Ok(SqlServerLeaseLocks::connect(&options).await?)
        });
        self
    }
}

impl<T: Configure> UseSqlServerLeaseLocking for T {}
