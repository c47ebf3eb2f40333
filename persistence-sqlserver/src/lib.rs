#![doc = include_str!("../README.md")]
//! # Map of the crate
//!
//! | item | what it is |
//! | --- | --- |
//! | [`SqlServerStore`] | the provider |
//! | [`SqlServerStoreOptions`] | how it connects |
//! | [`UseSqlServerPersistence`] | wires it into a host |
//! | [`SqlServerTransaction`] | what a step in a transaction writes its own rows with |
//! | [`SqlServerLeaseLocks`] | locks as leases in the same database, for those who have nothing else |
//! | [`SqlServerLeaseOptions`] | how leases are kept |
//! | [`UseSqlServerLeaseLocking`] | wires them into a host |
//! | [`schema_script`], [`roles_script`], [`lease_schema_script`] | scripts for a DBA |

mod activity;
mod checkpoint;
mod create;
mod definition;
mod error;
mod event;
#[cfg(test)]
mod grammar;
mod inbox;
mod lanes;
mod lease;
mod load;
mod options;
mod provider;
mod query;
mod record;
mod retention;
mod schema;
mod server;
mod sql;
mod transaction;

pub use latchwork_sqlserver_client::{ConnectionString, SqlServerTransaction};
pub use lease::{SqlServerLeaseLocks, SqlServerLeaseOptions, UseSqlServerLeaseLocking, lease_schema_script};
pub use options::SqlServerStoreOptions;
pub use provider::SqlServerStore;
pub use schema::{roles_script, schema_script};

use latchwork_core::options::Configure;

/// `use_sqlserver_persistence` on a host's builder.
pub trait UseSqlServerPersistence: Configure {
    /// Keeps everything in the database of this ADO.NET connection string; nothing connects before the host starts.
    #[must_use]
    fn use_sqlserver_persistence(self, connection_string: impl Into<ConnectionString>) -> Self {
        self.use_sqlserver_persistence_with(SqlServerStoreOptions::new(connection_string))
    }

    /// As [`use_sqlserver_persistence`](Self::use_sqlserver_persistence), with all options.
    #[must_use]
    fn use_sqlserver_persistence_with(mut self, options: SqlServerStoreOptions) -> Self {
        self.options().use_persistence(async move |context| Ok(SqlServerStore::open(&options, &context).await?));
        self
    }
}

impl<T: Configure> UseSqlServerPersistence for T {}
