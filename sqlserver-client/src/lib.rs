#![doc = include_str!("../README.md")]
//! # Map of the crate
//!
//! | item | what it is |
//! | --- | --- |
//! | [`ConnectionString`] | an ADO.NET connection string that never shows |
//! | [`SqlServerOptions`] | how sessions are opened |
//! | [`Session`] | one connection; one request at a time |
//! | [`SessionTask`] | a session that a task owns, for callers that may be dropped |
//! | [`SqlServerError`] | what can go wrong, and whether another try can help |
//! | [`driver`] | the driver, for its rows and parameters |

mod connection_string;
mod error;
mod options;
mod session;
mod stream;
mod task;

pub use connection_string::ConnectionString;
pub use error::SqlServerError;
pub use options::SqlServerOptions;
pub use session::Session;
pub use task::SessionTask;
pub use tiberius as driver;
