#![doc = include_str!("../README.md")]
//! # Map of the crate
//!
//! | item | what it is |
//! | --- | --- |
//! | [`SqlServerLocks`] | the provider |
//! | [`SqlServerLockOptions`] | how it connects |
//! | [`UseSqlServerLocking`] | wires it into a host |

mod batch;
mod connection;
mod options;
mod provider;

pub use latchwork_sqlserver_client::ConnectionString;
pub use options::SqlServerLockOptions;
pub use provider::SqlServerLocks;

use latchwork_core::options::Configure;

const PROVIDER: &str = "sqlserver";

/// `use_sqlserver_locking` on a host's builder.
pub trait UseSqlServerLocking: Configure {
    /// Takes locks from the database of this ADO.NET connection string: all hosts that do so, in the same namespace, exclude each
    /// other, and in the namespace `wfc` those of Workflow Core too.
    fn use_sqlserver_locking(self, connection_string: impl Into<ConnectionString>) -> Self {
        self.use_sqlserver_locking_with(SqlServerLockOptions::new(connection_string))
    }

    /// Takes locks as these options say; namespace and node are the host's.
    fn use_sqlserver_locking_with(mut self, options: SqlServerLockOptions) -> Self {
        self.options().use_distributed_lock_manager(async move |context| {
            let options = options.with_namespace(context.namespace).with_node(&*context.node);
            Ok(SqlServerLocks::connect(&options).await?)
        });
        self
    }
}

impl<T: Configure> UseSqlServerLocking for T {}
