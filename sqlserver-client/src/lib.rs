#![doc = include_str!("../README.md")]
//! # Map of the crate
//!
//! | item | what it is |
//! | --- | --- |
//! | [`ConnectionString`] | an ADO.NET connection string that never shows |
//! | [`SqlServerOptions`] | how sessions are opened |
//! | [`Session`] | one connection; one request at a time |
//! | [`SqlServerPool`] | a few sessions for many callers |
//! | [`SqlServerTransaction`] | a transaction on a session of its own |
//! | [`SchemaName`], [`MigrationSet`] | the schema that tables are in, and its history |
//! | [`SqlServerError`] | what can go wrong, and whether another try can help |
//! | [`driver`] | the driver, for its rows and parameters |

mod connection_string;
mod error;
mod migration;
mod options;
mod pool;
mod schema_name;
mod session;
mod stream;
mod transaction;

pub use connection_string::ConnectionString;
pub use error::SqlServerError;
pub use migration::{Migration, MigrationSet, SchemaMode};
pub use options::SqlServerOptions;
pub use pool::SqlServerPool;
pub use schema_name::SchemaName;
pub use session::Session;
pub use tiberius as driver;
pub use transaction::SqlServerTransaction;
